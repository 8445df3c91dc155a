"""The paper's timelines, as PNG, SVG and PDF (benchmarks/timelines.py)."""

import io
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageColor

from framenest import MEC, MECConfig
from framenest.errors import ConfigError
from framenest.report.page import read_images
from framenest.selectors import load_selector
from framenest.session import Session
from framenest.testing import ArrayDecoder, TableScorer
from score_tables import zero_elsewhere

pytest.importorskip("matplotlib", reason="needs the extra `plots`")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
figure = SimpleNamespace(**runpy.run_path(str(BENCHMARKS / "timelines.py")))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def video(frames):
    return ArrayDecoder(frames, fps=10)


def pictures_for(video, results):
    wanted = figure.figure_frames(results)
    return read_images(video, wanted, set(wanted))[1]


def ranked(video, **settings):
    config = MECConfig().with_settings(settings)
    return MEC(config, scorer=TableScorer(zero_elsewhere({30: 1.0, 90: 0.8}))).rank(
        video, "Where is <it> & why?"
    )


def test_rows_say_what_each_budget_keeps_and_adds(video):
    rows = figure.budgets_of(ranked(video))
    assert [prefix.budget for prefix in rows] == [8, 16, 32]
    assert figure.budget_notes(None, rows[0]) == ["8 frames"]
    assert figure.budget_notes(rows[1], rows[2]) == ["16 kept", "16 new"]
    short = figure.budgets_of(ranked(video, horizon=12))
    assert [prefix.budget for prefix in short] == [8, 12]


def test_the_svg_holds_every_frame_and_the_question_as_text(video):
    ranking = ranked(video)
    tree = ET.fromstring(figure.draw([ranking], pictures_for(video, [ranking]), "svg"))
    assert len(tree.findall(f".//{SVG}image")) == 8 + 16 + 32
    texts = [text.text for text in tree.iter(f"{SVG}text")]
    assert "Where is <it> & why?" in texts
    for k in (8, 16, 32):
        assert f"K={k}" in texts


def test_the_png_shows_the_colors_of_the_ranks(video):
    ranking = ranked(video)
    image = Image.open(io.BytesIO(figure.draw([ranking], pictures_for(video, [ranking]), "png")))
    assert image.width == 2400
    pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    for band in figure.BANDS:
        share = (pixels == ImageColor.getrgb(band)).all(axis=1).mean()
        assert 0.001 < share < 0.05, "borders and ticks; the frames are not covered"


def test_selections_say_what_they_drop(video):
    selection = load_selector("uniform", Session(TableScorer(zero_elsewhere({1: 1.0})))).select(
        video, "Where?", [8, 16]
    )
    rows = figure.budgets_of(selection)
    kept = len(np.intersect1d(selection.prefixes[8].frames, selection.prefixes[16].frames))
    assert figure.budget_notes(*rows) == [f"{kept} of 8 kept", f"{16 - kept} new"]
    long = load_selector("uniform", Session(TableScorer(zero_elsewhere({1: 1.0})))).select(
        video, "Where?", [64]
    )
    with pytest.raises(ConfigError, match="up to 32"):
        figure.budgets_of(long)


def test_the_command(clip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    MEC(scorer=TableScorer(zero_elsewhere({40: 1.0}))).rank(clip, "Where?").save("ranking.json")
    figure.main(["timeline.pdf", "ranking.json"])
    assert (tmp_path / "timeline.pdf").read_bytes().startswith(b"%PDF")
