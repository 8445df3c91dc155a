"""A prefix as `sample_indices_fn` of transformers' load_video: exactly its frames, of exactly its video."""

import importlib.util

import numpy as np
import pytest

import framenest as fn
from media import number_in, numbered_video

pytest.importorskip("torch", reason="needs torch; run: make test-ask")
video_utils = pytest.importorskip("transformers.video_utils", reason="needs transformers; run: make test-ask")

MODULES = {"pyav": "av", "opencv": "cv2", "torchcodec": "torchcodec", "decord": "decord"}
BACKENDS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not here"),
    )
    for name, module in MODULES.items()
]
LATE = [7000 + 40 * i for i in range(60)]
UNEVEN = np.cumsum(np.random.default_rng(0).integers(10, 200, 90)).tolist()


def prefix_of(video, *frames):
    decoder = fn.open_video(video)
    numbers = np.array(frames, dtype=np.int64)
    return fn.Prefix(decoder.info, len(frames), numbers, decoder.seconds[numbers], None)


def loaded(video, prefix, backend="pyav", **more):
    return video_utils.load_video(str(video), sample_indices_fn=prefix, backend=backend, **more)


@pytest.mark.parametrize("backend", BACKENDS)
def test_exactly_the_frames(clip, backend):
    ranking = fn.MEC(scorer=None).rank(clip, None)
    prefix = ranking.prefix(8)
    frames, metadata = loaded(clip, prefix, backend)
    pixels = np.asarray(frames) if frames.shape[-1] == 3 else np.moveaxis(np.asarray(frames), 1, -1)
    assert [number_in(picture) for picture in pixels] == prefix.frames.tolist()
    assert np.asarray(metadata.frames_indices).tolist() == prefix.frames.tolist()
    assert np.allclose(metadata.timestamps, prefix.seconds)


def test_other_arguments_of_load_video_are_allowed(clip):
    frames, _ = loaded(clip, prefix_of(clip, 3, 200), device="cpu")
    assert [number_in(picture) for picture in frames] == [3, 200]


@pytest.mark.parametrize("backend", ["pyav", "opencv"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [("late.mkv", {"ticks": LATE}), ("uneven.mkv", {"ticks": UNEVEN}), ("uneven.mp4", {"ticks": UNEVEN}),
     ("stream.ts", {}), ("web.webm", {"codec": "libvpx", "options": {"deadline": "realtime"}})],
)  # fmt: skip
def test_a_header_that_names_another_count_or_rate(tmp_path, name, settings, backend):
    """Without a count, with one that includes the time before the first frame, with a nominal rate."""
    pytest.importorskip(MODULES[backend])
    count = len(settings.get("ticks", UNEVEN))
    video = numbered_video(tmp_path / name, count, **settings)
    frames, _ = loaded(video, prefix_of(video, 0, 31, count - 1), backend)
    assert [number_in(picture) for picture in frames] == [0, 31, count - 1]


@pytest.fixture
def truncated(tmp_path):
    """A header that promises 300 frames, and about half of them."""
    whole = numbered_video(tmp_path / "whole.mp4", 300, container_options={"movflags": "faststart"})
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 6 // 10])
    return cut


@pytest.mark.parametrize("backend", ["pyav", "opencv"])
def test_a_truncated_file(truncated, backend):
    pytest.importorskip(MODULES[backend])
    frames, metadata = loaded(truncated, prefix_of(truncated, 5, 120), backend)
    assert metadata.total_num_frames == 300
    assert [number_in(picture) for picture in frames] == [5, 120]


def test_another_count_is_another_video(clip, tmp_path):
    other = numbered_video(tmp_path / "other.mp4", 299)
    with pytest.raises(fn.IndexMismatch, match=r"it has 299 frames at 25\.00 .*clip\.mp4 has 300 at 25\.00"):
        loaded(other, prefix_of(clip, 3))


def test_another_rate_is_another_video(clip, tmp_path):
    other = numbered_video(tmp_path / "other.mp4", 300, fps=30)
    with pytest.raises(fn.IndexMismatch, match=r"at 30\.00 per second"):
        loaded(other, prefix_of(clip, 3))


def test_the_claims_of_a_file_that_has_changed_count_for_nothing(truncated, tmp_path):
    prefix = prefix_of(truncated, 5)
    numbered_video(truncated, 200)
    with pytest.raises(fn.IndexMismatch, match="has changed since it was ranked"):
        loaded(truncated, prefix)


def test_a_moved_video_is_known_by_its_numbers(clip, tmp_path):
    old, new = tmp_path / "old.mp4", tmp_path / "new.mp4"
    old.write_bytes(clip.read_bytes())
    prefix = prefix_of(old, 7)
    old.rename(new)
    assert number_in(loaded(new, prefix)[0][0]) == 7


def test_frames_that_a_backend_would_drop(tmp_path):
    """OpenCV counts too few frames of MPEG-2 and stops there, without a word."""
    pytest.importorskip("cv2")
    video = numbered_video(tmp_path / "old.mpg", 130, codec="mpeg2video", options={"g": "15", "bf": "2"})
    assert number_in(loaded(video, prefix_of(video, 120), "opencv")[0][0]) == 120
    with pytest.raises(fn.IndexMismatch, match="opencv counts 126 frames and would not reach frame 129"):
        loaded(video, prefix_of(video, 0, 129), "opencv")
    assert len(loaded(video, prefix_of(video, 0, 129), "pyav")[0]) == 2


def test_no_frame(clip):
    with pytest.raises(fn.BudgetError):
        loaded(clip, prefix_of(clip))


def test_the_array_is_the_callers(clip):
    prefix = prefix_of(clip, 1, 2)
    prefix({"total_num_frames": 300, "fps": 25.0, "video_backend": "pyav"})[:] = 0
    assert prefix.frames.tolist() == [1, 2]
