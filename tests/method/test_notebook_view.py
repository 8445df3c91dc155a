"""A Ranking and a Prefix in a notebook."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
from PIL import Image

import framenest as fn
from framenest.method import prefix
from framenest.testing import TableScorer
from media import number_in
from score_tables import zero_elsewhere


def pictures(html):
    for data in re.findall(r'src="data:image/jpeg;base64,([^"]+)"', html):
        yield np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


def well_formed(html):
    """Every tag closed; void elements of HTML made XML's."""
    return ElementTree.fromstring(re.sub(r"(<img [^>]*)>", r"\1/>", html))


def test_a_prefix_shows_its_frames(clip):
    prefix = fn.rank(clip, None, 5)
    html = prefix._repr_html_()
    assert [number_in(picture) for picture in pictures(html)] == prefix.frames.tolist()
    page = well_formed(html)
    labels = [caption.text for caption in page.iter("figcaption")]
    rank, second, frame = next(iter(prefix))
    assert labels[0] == f"#{rank} · {fn.text.clock(second)} · frame {frame}"


def test_a_ranking_shows_its_first_frames(clip):
    ranking = fn.MEC(scorer=TableScorer(zero_elsewhere({1: 1.0}))).rank(clip, "<b>Where?")
    html = ranking._repr_html_()
    assert [number_in(p) for p in pictures(html)] == ranking.prefix(8).frames.tolist()
    page = well_formed(html)
    assert "“<b>Where?”" in "".join(page.itertext())


def test_many_frames_are_cut_to_the_best(clip, monkeypatch):
    monkeypatch.setattr(prefix, "STRIP_FRAMES", 4)
    ranking = fn.MEC(scorer=None).rank(clip, None)
    html = ranking.prefix(9)._repr_html_()
    assert [number_in(p) for p in pictures(html)] == ranking.prefix(4).frames.tolist()
    assert "… and 5 more" in html


def test_without_the_video_it_says_why(frames):
    html = fn.rank(frames, None, 3, fps=25)._repr_html_()
    assert "No images: this video was in memory" in html
    assert "3 frames of" in "".join(well_formed(html).itertext())
