"""framenest models and framenest cache."""

import json
import re

import pytest

from command_line import FAST, run, terminal
from framenest.cache.directory import DirectoryStore
from framenest.models import CATALOGUE
from framenest.scorers.question_text import SentenceEncoder
from framenest.scorers.tags import TagScorer


def test_cache_commands(capsys, clip, cache):
    run(capsys, "rank", clip, "--no-question", *FAST)
    code, out, _ = run(capsys, "cache", "where")
    assert (code, out.strip()) == (0, str(cache))
    assert re.search(r"^index\t1\t[\d.]+ KiB", run(capsys, "cache", "size")[1], re.M)
    counted = json.loads(run(capsys, "cache", "size", "--json")[1])
    assert counted["index"]["files"] == 1
    assert 0 < counted["index"]["bytes"] < 2**20
    for kind in ("vectors", "screens"):  # of `search`, and of text on screen
        DirectoryStore(cache).put(f"{kind}/ab12", {}, {})
    assert re.match(rf"[\d.]+ KiB freed in {re.escape(str(cache))}\n", run(capsys, "cache", "clear")[1])
    assert not list(cache.rglob("*.safetensors"))


def test_models_lists_every_scorer_with_its_needs(capsys, monkeypatch):
    listed = [json.loads(line) for line in run(capsys, "models", "--json")[1].splitlines()]
    assert [entry["scorer"] for entry in listed] == list(CATALOGUE)
    assert [entry["size"] for entry in listed] == [entry.size for entry in CATALOGUE.values()]
    terminal(monkeypatch, 120)
    code, out, err = run(capsys, "models")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith(" ") and line.strip()}
    for name, entry in CATALOGUE.items():
        assert f" {entry.licence} " in rows[name]
    assert " 4.38 GiB " in rows["blip2"]
    for name, entry in CATALOGUE.items():
        state = (
            ("no weights" if entry.sources else "ready") if entry.installed() else f"needs [{entry.extra}]"
        )
        assert state in rows[name]
    assert "run: framenest models fetch tags" in err, "in an empty cache nothing is ready"


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_of_models_has_whole_words(capsys, monkeypatch, columns):
    terminal(monkeypatch, columns)
    out = run(capsys, "models")[1]
    table = out[: out.index("no weights, or damaged")]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= columns
    for entry in CATALOGUE.values():
        assert set(f"{entry.what} {entry.speed} {entry.licence}".split()) <= set(table.split())


def test_fetching_tags_does_what_its_first_question_would_wait_for(capsys, tags_store, monkeypatch):
    assert run(capsys, "models", "fetch", "tags")[0] == 0
    monkeypatch.setattr(SentenceEncoder, "many", None)  # nothing is computed again
    assert run(capsys, "models", "fetch", "tags")[0] == 0
    assert TagScorer(tags_store).name == "tags"
