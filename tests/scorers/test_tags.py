"""The embedded scorer with its real weights, on photographs it should know."""

import json
import sys
import threading

import numpy as np
import pytest
from PIL import Image, ImageOps

from framenest import MEC, FrameBatch, MissingExtra, ScorerError, models
from framenest.cache.directory import DirectoryStore
from framenest.processes import cores
from framenest.protocols import Scorer
from framenest.scorers import load_scorer, tags
from framenest.scorers.calibration import Calibrated, logistic, standardise
from framenest.scorers.checkpoint import CutQuestion
from framenest.scorers.colours import COLOURS, colour_shares, colours_of
from media import encode_video
from processes import PATIENCE


def test_logistic_by_hand():
    """Probes 0..100: the centre is 96.5, the width half of their deviation √850 ≈ 29.155."""
    probes = np.arange(101, dtype=float)
    relevance = logistic(np.array([96.5, 96.5 + 29.1548 / 2, -1e9, 1e9]), probes)
    assert relevance == pytest.approx([0.5, 1 / (1 + np.exp(-1)), 0, 1], abs=1e-4)


def test_constant_scores_are_undecided():
    assert logistic(np.ones(3), np.ones(5)).tolist() == [0.5, 0.5, 0.5]
    assert standardise(np.ones(3), np.ones(5)).tolist() == [0, 0, 0]


def pictures(rng, count, scorer):
    """Noise of the sizes the scorer asks for."""
    sizes = [(s.height, s.width) for s in scorer.inputs]
    return FrameBatch(
        np.arange(count),
        np.arange(count) / 10,
        tuple(rng.integers(0, 256, (count, h, w, 3), dtype=np.uint8) for h, w in sizes),
    )


def test_shapes_range_and_determinism(tag_scorer):
    batch = pictures(np.random.default_rng(0), 6, tag_scorer)
    encoded = tag_scorer.encode(batch)
    assert encoded["classes"].shape == (6, 1000)
    assert np.allclose(encoded["classes"].sum(axis=1), 1, atol=1e-5)
    relevance = tag_scorer.match(encoded, "Where is the dog?")
    assert relevance.shape == (6,)
    assert relevance.dtype == np.float32
    assert ((relevance >= 0) & (relevance <= 1)).all()
    assert (tag_scorer.match(tag_scorer.encode(batch), "Where is the dog?") == relevance).all()
    assert isinstance(tag_scorer, Scorer)


def test_batch_size_does_not_matter(tag_scorer):
    batch = pictures(np.random.default_rng(1), 5, tag_scorer)
    whole = tag_scorer.encode(batch)
    for row in range(5):
        one = FrameBatch(batch.frames[[row]], batch.seconds[[row]], tuple(p[[row]] for p in batch.pixels))
        for name, array in tag_scorer.encode(one).items():
            assert (array[0] == whole[name][row]).all()


def test_what_has_not_run_when_encoding_breaks_off_never_runs(tag_scorer, monkeypatch):
    """So that Ctrl-C waits for no more images than there are threads."""
    released, ran = threading.Event(), []

    def classifier(_):
        raise KeyboardInterrupt

    def detector(_):
        ran.append(1)
        released.wait(PATIENCE)

    model = tag_scorer._model()
    monkeypatch.setattr(model, "classifier", classifier)
    monkeypatch.setattr(model, "detector", detector)
    monkeypatch.setattr(tag_scorer, "inputs", tags.IMAGES)
    with pytest.raises(KeyboardInterrupt):
        tag_scorer.encode(pictures(np.random.default_rng(4), 20, tag_scorer))
    released.set()
    model._threads.submit(int).result()
    assert len(ran) <= min(cores(), tags.MOST_AT_ONCE)


def test_relevance_is_measured_against_the_reference(tag_scorer):
    """What is scored beside a frame does not change its relevance; the probes do."""
    encoded = tag_scorer.encode(pictures(np.random.default_rng(2), 8, tag_scorer))
    some = {name: array[5:] for name, array in encoded.items()}
    together = tag_scorer.match(encoded, "a cat", reference=encoded)
    assert np.allclose(tag_scorer.match(some, "a cat", reference=encoded), together[5:], atol=1e-6)


@pytest.mark.filterwarnings("ignore::framenest.scorers.checkpoint.CutQuestion")
@pytest.mark.parametrize("question", ["?", "word " * 2000, "Где собака?", "猫在哪里？", "🐈"])
def test_odd_questions(tag_scorer, question):
    encoded = tag_scorer.encode(pictures(np.random.default_rng(3), 4, tag_scorer))
    relevance = tag_scorer.match(encoded, question)
    assert np.isfinite(relevance).all()


def test_it_finds_what_is_asked_for(tag_scorer, tags_store, shared_data, tmp_path):
    """Real photographs as a slide show, asked for by their captions: most come first."""
    photos = json.loads((shared_data / "photos" / "captions.json").read_text())[:20]
    slides = []
    for photo in photos:
        with Image.open(shared_data / photo["file"]) as image:
            slides.append(np.asarray(ImageOps.pad(image.convert("RGB"), (320, 240))))
    video = encode_video(tmp_path / "slides.mp4", [s for s in slides for _ in range(3)], fps=1)
    mec = MEC(scorer=tag_scorer, store=tags_store)
    firsts = [mec.rank(video, photo["captions"][0]).frames[0] // 3 for photo in photos]
    assert sum(first == i for i, first in enumerate(firsts)) >= 11, firsts


def test_missing_weights_name_the_command(tmp_path):
    pytest.importorskip("onnxruntime", reason="needs the extra `tags`")
    with pytest.raises(ScorerError, match="run: framenest models fetch tags"):
        MEC(scorer="tags", store=tmp_path).session.scorer  # noqa: B018 - loading is the test


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_a_missing_package_names_the_pip_line(tags_store, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{package} is not installed; run.* install .*\[tags\]'?$"):
        load_scorer("tags", tags_store)


def test_without_the_detectors_runtime_it_says_so(warm_tags_store, monkeypatch):
    from framenest.scorers.tags import TagScorer

    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    scorer = TagScorer(warm_tags_store)
    assert scorer.version == "2 without the detector"
    assert len(scorer.inputs) == 1
    encoded = scorer.encode(pictures(np.random.default_rng(0), 2, scorer))
    assert sorted(encoded) == ["classes", "colours"]
    assert scorer.match(encoded, "a dog").shape == (2,)


@pytest.mark.parametrize("damaged", [file.name for file in models.TAGS])
def test_a_broken_model_file_is_a_scorer_error(tags_store, tmp_path, damaged):
    store = DirectoryStore(tmp_path / "broken")
    folder = store.root / "models"
    folder.mkdir(parents=True)
    for file in (tags_store.root / "models").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    broken = folder / damaged
    broken.write_bytes(bytes(broken.stat().st_size))
    with pytest.raises(ScorerError, match=r"is damaged: .*; run: framenest models fetch tags"):
        MEC(scorer="tags", store=store).session.scorer  # noqa: B018


def test_calibration_is_a_named_choice(tag_scorer, warm_tags_store):
    from framenest.scorers.tags import TagScorer

    mapped, plain = tag_scorer, TagScorer(warm_tags_store, "none")
    encoded = mapped.encode(pictures(np.random.default_rng(4), 12, mapped))
    one, other = (s.match(encoded, "a cat", reference=encoded) for s in (mapped, plain))
    assert (np.argsort(one, kind="stable") == np.argsort(other, kind="stable")).all()
    assert mapped.relevance == "compares frames of this video"
    assert plain.relevance == "compares frames of this video, without calibration"


def test_a_long_question_is_cut_and_said_so(tag_scorer):
    encoded = tag_scorer.encode(pictures(np.random.default_rng(5), 2, tag_scorer))
    with pytest.warns(CutQuestion, match=r"tags reads 256 tokens; the question has \d+"):
        tag_scorer.match(encoded, "word " * 400)


def test_equal_neighbours_are_looked_at_once(tag_scorer, monkeypatch):
    """The numbers are the same as of each frame alone, bit for bit."""
    rng = np.random.default_rng(0)
    which = [0, 0, 1, 2, 2, 2, 0]
    pixels = tuple(
        rng.integers(0, 256, (3, side, side, 3), np.uint8)[which]
        for side in (224, 320)[: len(tag_scorer.inputs)]
    )
    looked = []
    classify = tags._Classifier.__call__
    monkeypatch.setattr(tags._Classifier, "__call__", lambda *a: looked.append(1) or classify(*a))
    frames = FrameBatch(np.arange(7), np.arange(7.0), pixels)
    together = tag_scorer.encode(frames)
    assert len(looked) == 4
    for row in range(7):
        alone = tag_scorer.encode(
            FrameBatch(np.arange(1), np.zeros(1), tuple(p[row : row + 1] for p in pixels))
        )
        for kind in together:
            assert (together[kind][row] == alone[kind][0]).all()


def test_one_core_and_two_see_the_same(warm_tags_store, tag_scorer, monkeypatch):
    monkeypatch.setenv("FRAMENEST_THREADS", "1")
    alone = type(tag_scorer)(warm_tags_store)
    sizes = [spec.size(640, 360) for spec in alone.inputs]
    rng = np.random.default_rng(1)
    pixels = tuple(rng.integers(0, 256, (3, h, w, 3), np.uint8) for w, h in sizes)
    frames = FrameBatch(np.arange(3), np.arange(3.0), pixels)
    one, more = alone.encode(frames), tag_scorer.encode(frames)
    assert one.keys() == more.keys()
    assert all((one[kind] == more[kind]).all() for kind in one)


@pytest.mark.parametrize(
    ("question", "known", "unknown"),
    [
        ("When does the rabbit shoot an arrow?", ["rabbit"], ["shoot", "arrow"]),
        ("Where are the cups and the traffic lights?", ["cups", "traffic lights"], []),
        ("When does a man sit on a sofa?", ["man", "sofa"], ["sit"]),
        ("Which cockatoo is planted?", ["cockatoo"], ["planted"]),
        ("When is a glass of beer shown?", ["glass", "beer"], []),
        ("Where is the cup of coffee?", ["cup", "coffee"], []),
        ("When is a dog in the water?", ["dog"], ["water"]),  # not an Irish water spaniel
        ("When does the woman drink beer?", ["woman"], ["drink", "beer"]),
        ("What is the meaning of life?", [], ["meaning", "life"]),
        ("asdf qwerty", [], ["asdf", "qwerty"]),
        ("Где собака?", [], ["где", "собака"]),
        ("What is it?", [], []),
    ],
)
def test_it_says_which_words_it_knows(tag_scorer, question, known, unknown):
    encoded = tag_scorer.encode(pictures(np.random.default_rng(6), 2, tag_scorer))
    found = tag_scorer.match_strength(encoded, question)
    assert (list(found.known), list(found.unknown)) == (known, unknown)
    if not known:
        assert found.verdict == "cannot tell"


def what_is_seen(scorer, **seen):
    """Features of two synthetic frames; the second shows what is named, with the confidence given."""
    encoded = {"classes": np.full((2, 1000), 1e-4, np.float32), "objects": np.full((2, 90), 0.01, np.float32)}
    names = scorer._model().names
    for name, sure in seen.items():
        for kind, values in encoded.items():
            if name.replace("_", " ") in names[kind]:
                values[1, names[kind].index(name.replace("_", " "))] = sure
    return encoded


def test_none_where_the_detector_would_have_seen_it(tag_scorer):
    def verdict(question, **seen):
        return tag_scorer.match_strength(what_is_seen(tag_scorer, **seen), question).verdict

    assert verdict("Where is the cup?") == "none"
    assert verdict("Where is the cup?", cup=0.9) == "strong"
    assert verdict("Where is the giraffe?", giraffe=0.74) == "none", "as sure as it is of other animals"
    assert verdict("Where is the giraffe?", giraffe=0.9) != "none"
    assert verdict("When is the dog there?", standard_poodle=0.9) != "none", "a poodle is a dog"
    assert verdict("What are human rights?", person=0.95) != "strong", "people are in most videos"
    assert verdict("When is it all red?") == "weak", "colours are known, and in most videos"


def test_what_looks_drawn_is_never_a_strong_match(tag_scorer):
    """The classifier puts drawings and screens into the class web site: a mean of 0.045 over the probes."""
    for share, verdict in ((0.08, "strong"), (0.1, "weak")):
        seen = what_is_seen(tag_scorer, cup=0.9, web_site=share)
        seen["classes"][0, tag_scorer._model().names["classes"].index("web site")] = 0
        match = tag_scorer.match_strength(seen, "Where is the cup?")
        assert (match.verdict, bool(match.doubt)) == (verdict, verdict == "weak")
        assert match.words.endswith("tags knows photographs") == (verdict == "weak")


def test_a_verdict_by_hand(tag_scorer):
    """Strong: the mean confidence in the words, 0 for unknown ones, is 0.15 or more."""

    def strength(question, **seen):
        return tag_scorer.match_strength(what_is_seen(tag_scorer, **seen), question)

    assert strength("When is the cup wet?", cup=0.9).verdict == "strong", "0.9 / 2"
    six = strength("When is the cup bright, wet, cheap, tall, narrow and round?", cup=0.9)
    assert six.value >= 0.8, "the same evidence"
    assert (six.verdict, six.there) == ("weak", ("cup",)), "0.9 / 7"
    assert six.words.startswith("seems to show: cup; cannot tell which of its moments (")
    assert strength("Where is the cup?", cup=0.15).verdict == "none", "below every level"
    assert strength("Where is the bottle?", bottle=0.25).verdict == "weak", (
        "below the detector's 0.3, not absent"
    )
    assert strength("Where is the giraffe?", giraffe=0.74).verdict == "none", "0.84 for large animals"
    assert strength("Where is the red cup?").verdict == "weak", "a colour may be seen"
    assert strength("What are human rights?", person=0.95).verdict == "weak", "people do not count here"


def test_a_frame_that_clearly_shows_what_a_search_is_for(tag_scorer):
    """Both networks see the thing, or the detector alone is very sure; few of the words are unknown."""

    def shown(query, **seen):
        first, second = tag_scorer.clearly_shows(what_is_seen(tag_scorer, **seen), query)
        assert not first
        return bool(second)

    assert shown("a glass of beer", beer_glass=0.9, wine_glass=0.3), "√(0.9 · 0.3) = 0.52"
    assert not shown("a glass of beer", beer_glass=0.9, wine_glass=0.1), "√(0.9 · 0.1) = 0.3"
    assert shown("a hot dog", hot_dog=0.92)
    assert not shown("a hot dog", hot_dog=0.88), "only the detector knows it, and calls much a hot dog"
    assert shown("a lion lies on a rock", lion=0.99), "0.99 / 3"
    assert not shown("an old lion lies on a bright rock", lion=0.99), "0.99 / 5"
    assert not shown("a person with an opinion", person=0.99), "people are in most videos"
    assert shown("a person", person=0.99)
    assert not shown("a unicorn", hot_dog=0.99, lion=0.99)


def test_the_labels_with_the_largest_share_of_the_score_are_the_reason(tag_scorer):
    """Every reading splits into labels; their shares sum to the score."""
    encoded = what_is_seen(tag_scorer, coffee_mug=0.41, laptop=0.8)
    first, second = tag_scorer.labels(encoded, "Where is the cup?", encoded)
    assert second.startswith("coffee mug 0.41"), "the laptop is surer and answers nothing"
    assert first == "", "nothing speaks for it"
    assert tag_scorer.labels(encoded, "Where is the computer?", encoded)[1].startswith("laptop 0.80")
    coat = what_is_seen(tag_scorer, trench_coat=0.1, person=0.3, African_grey=0.6)
    _, reason = tag_scorer.labels(coat, "a person in a grey coat", coat)
    assert "grey" not in reason, "a parrot is no word of the question"
    assert "person 0.30" in reason
    question = "Where is the cup?"
    vector = tag_scorer.text_vector(question)
    total = tag_scorer._shares(encoded, vector, encoded).sum(axis=1)
    assert total == pytest.approx(tag_scorer.scores(encoded, question, encoded), abs=1e-3)


def flat(*colours):
    return [np.full((40, 40, 3), colour, np.uint8) for colour in colours]


def test_names_of_plain_colours():
    plain = {
        "black": (20, 20, 20), "white": (250, 250, 250), "grey": (128, 128, 128), "red": (220, 20, 30),
        "orange": (255, 140, 0), "yellow": (240, 220, 30), "green": (30, 150, 40), "blue": (30, 60, 200),
        "purple": (128, 0, 160), "pink": (255, 150, 180), "brown": (110, 65, 25),
    }  # fmt: skip
    shares = colour_shares(flat(*plain.values()))
    assert [COLOURS[place] for place in shares.argmax(axis=1)] == list(plain)
    assert (shares.max(axis=1) == 1).all()
    half = flat((220, 20, 30))[0]
    half[:, 20:] = (30, 60, 200)
    assert colour_shares([half])[0, [COLOURS.index("red"), COLOURS.index("blue")]].tolist() == [0.5, 0.5]
    assert colour_shares([]).shape == (0, 11)


@pytest.mark.parametrize(
    ("question", "terms", "colours"),
    [
        ("a beige and gray wall", ["beige", "gray", "wall"], {"beige": "white", "gray": "grey"}),
        ("Where is the orange?", ["orange"], {}),
        ("When is the screen orange?", ["screen", "orange"], {"orange": "orange"}),
        ("the colour orange", ["colour", "orange"], {"orange": "orange"}),
        ("an orange on the table", ["orange", "table"], {}),
        ("a bird with an orange crest", ["bird", "orange", "crest"], {"orange": "orange"}),
        ("orange and blue luggage", ["orange", "blue", "luggage"], {"orange": "orange", "blue": "blue"}),
        ("a golden retriever", ["golden retriever"], {}),
    ],
)
def test_colours_of_a_question(question, terms, colours):
    assert {word: COLOURS[place] for word, place in colours_of(question, terms).items()} == colours


def test_a_colour_joins_where_no_object_can_have_it(tag_scorer):
    """0.6 of the labels' relevance and 0.4 of the share, relative to the probes with the most of it."""
    encoded = what_is_seen(tag_scorer, laptop=0.8) | {
        "colours": colour_shares(flat((220, 20, 30), (30, 60, 200)))
    }
    plain = Calibrated.match(tag_scorer, encoded, "red flowers")
    assert tag_scorer.match(encoded, "red flowers") == pytest.approx(0.6 * plain + [0.4, 0], abs=0.005)
    assert tag_scorer.labels(encoded, "red flowers", encoded)[0] == "red 100% of the picture"
    for question in ("a red car", "flowers"):
        same = Calibrated.match(tag_scorer, encoded, question)
        assert (tag_scorer.match(encoded, question) == same).all(), "bit for bit"
    strength = tag_scorer.match_strength(encoded, "a red laptop")
    assert (strength.known, strength.unknown) == (("laptop", "red"), ())


def test_it_cannot_tell_how_many_there_are_or_that_there_are_none(tag_scorer):
    encoded = what_is_seen(tag_scorer, bottle=0.9, person=0.9)
    assert tag_scorer.match_strength(encoded, "When is a bottle seen?").verdict != "cannot tell"
    for question in ("When is only one bottle left?", "When is nobody beside the bottle?"):
        assert tag_scorer.match_strength(encoded, question).verdict == "cannot tell"
