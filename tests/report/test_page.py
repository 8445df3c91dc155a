"""The report as a file, without a browser: self-contained, small, escaped."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from framenest import MEC, MECConfig
from framenest.cli import main
from framenest.errors import ConfigError
from framenest.report import page as page_module
from framenest.report.document import document
from framenest.report.page import embed, page, view_script, view_style
from framenest.testing import ArrayDecoder, TableScorer
from media import numbered_video
from score_tables import zero_elsewhere


@pytest.fixture
def ranking_file(clip, tmp_path):
    file = tmp_path / "ranking.json"
    MEC(scorer=TableScorer(zero_elsewhere({40: 1.0}))).rank(clip, "Where is it?").save(file)
    return file


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def test_writes_one_page_that_asks_for_nothing(ranking_file, tmp_path, capsys):
    target = tmp_path / "page.html"
    assert run("report", ranking_file, "-o", target) == 0
    assert "256 frames" in capsys.readouterr().out
    text = target.read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)""", text)
    assert "@import" not in text
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "default-src 'none'" in text


def test_a_page_of_256_noisy_frames_is_under_5_mb(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (280, 180, 320, 3), dtype=np.uint8)
    video = ArrayDecoder(noise, fps=10)
    ranking = MEC(scorer=TableScorer(zero_elsewhere({40: 1.0}))).rank(video, "Where?")
    assert len(ranking) == 256
    text = page(document([ranking]), embed(video, [ranking]))
    assert len(text.encode()) < 5_000_000


def test_the_first_32_frames_are_larger(clip, tmp_path):
    from framenest.video.opening import open_video

    large_clip = numbered_video(tmp_path / "large.mp4", 60, 960, 540)
    video = open_video(large_clip)
    ranking = MEC(
        MECConfig().with_settings({"horizon": 40}), scorer=TableScorer(zero_elsewhere({4: 1.0}))
    ).rank(video, "Where?")
    urls = embed(video, [ranking])
    large = [int(frame) for frame, sizes in urls.items() if "large" in sizes]
    assert sorted(large) == sorted(ranking.frames[:32].tolist())
    assert len(urls) == 40
    first = urls[str(ranking.frames[0])]
    assert _size(first["small"]) == (228, 128)
    assert _size(first["large"]) == (640, 360)


def _size(url):
    return Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))).size


def test_small_videos_are_not_blown_up(clip):
    from framenest.video.opening import open_video

    video = open_video(clip)
    ranking = MEC(scorer=TableScorer(zero_elsewhere({4: 1.0}))).rank(video, "Where?")
    assert _size(embed(video, [ranking])[str(ranking.frames[0])]["large"]) == (96, 64)


def test_too_many_frames_are_refused(clip, monkeypatch):
    from framenest.video.opening import open_video

    monkeypatch.setattr(page_module, "MAX_IMAGE_CHARACTERS", 1000)
    video = open_video(clip)
    ranking = MEC(scorer=TableScorer(zero_elsewhere({4: 1.0}))).rank(video, "Where?")
    with pytest.raises(ConfigError, match="fewer rankings"):
        embed(video, [ranking])


def test_text_cannot_leave_its_place(frames):
    question = "</script><!-- <script> {{script}} \u2028 </title>"
    ranking = MEC(scorer=TableScorer(zero_elsewhere({4: 1.0}))).rank(ArrayDecoder(frames, fps=10), question)
    text = page(document([ranking]), {})
    assert text.count("</script>") == 3
    assert text.count("</title>") == 1
    assert "&lt;/title&gt;" in text


def test_the_view_is_one_module_without_imports():
    script = view_script()
    assert not re.search(r"^import ", script, re.M)
    assert "export function render(" in script
    names = re.findall(r"^(?:export )?(?:function|const|let) (\w+)", script, re.M)
    assert len(names) == len(set(names)), "files of the view are joined; their names must differ"
    assert "innerHTML" not in script
    assert "url(" not in view_style()


def test_a_missing_video_says_what_to_do(ranking_file, tmp_path, capsys):
    text = ranking_file.read_text().replace("clip.mp4", "gone.mp4")
    ranking_file.write_text(text)
    assert run("report", ranking_file, "-o", tmp_path / "page.html") == 2
    assert "--video" in capsys.readouterr().err


def test_an_output_is_checked_before_the_work(ranking_file, tmp_path, capsys):
    assert run("report", ranking_file, "-o", tmp_path) == 2
    assert "is a directory" in capsys.readouterr().err
