"""framenest doctor."""

import json

from command_line import run
from framenest.models import CATALOGUE


def test_a_line_for_each_thing_with_its_remedy(capsys, tags_store):
    code, out, err = run(capsys, "doctor", "-q")
    lines = {name: (state, found) for name, state, found in (line.split("\t") for line in out.splitlines())}
    assert (code, err) == (0, "")
    said = {name: f"{'speech' if name == 'asr' else 'scorer'} {name}" for name in CATALOGUE}
    assert set(said.values()) < set(lines)
    assert lines["scorer tags"] == ("ok", "ready")
    for name, entry in CATALOGUE.items():
        if not entry.here(tags_store):
            remedy = "framenest models fetch" if entry.installed() else "install"
            assert lines[said[name]][0] == "–"
            assert remedy in lines[said[name]][1]
    assert lines["self-test"][0] == "ok"
    assert "ranked 48 frames of it with " in lines["self-test"][1]


def test_without_a_scorer_it_fails_and_still_ranks(capsys, cache):
    code, out, _ = run(capsys, "doctor", "--json")
    found = {entry["what"]: entry for entry in json.loads(out)}
    assert code == 1
    assert [what for what, entry in found.items() if entry["state"] == "failed"] == ["--scorer auto"]
    assert "framenest models fetch tags" in found["--scorer auto"]["found"]
    assert "ranked 48 frames of it without a question" in found["self-test"]["found"]


def test_what_breaks_is_told(capsys, tmp_path):
    """A cache that is a file."""
    (tmp_path / "file").write_text("x")
    code, out, err = run(capsys, "doctor", "--cache", tmp_path / "file" / "below")
    assert (code, err) == (1, "")
    assert "cache\tfailed\t" in out
    assert "give another with --cache DIR or $FRAMENEST_CACHE" in out
