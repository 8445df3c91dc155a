"""Every command has its help; commands that share options share them whole."""

import re

import pytest
import rich_click as click

import framenest
from command_line import commands, help_of, run
from framenest.cli import app
from framenest.config import PRESETS
from framenest.evaluation.lmms_eval.tasks import TaskSettings


def test_version(capsys):
    assert run(capsys, "--version")[:2] == (0, f"framenest, version {framenest.__version__}\n")


def test_every_option_of_every_command_says_what_it_does(capsys):
    for path, command in commands(app):
        code, out, err = help_of(capsys, path, command)
        assert (code, err) == (0, ""), path
        assert f"Usage: framenest {' '.join(path)}" in out
        rows = [
            re.split(r" {2,}", line.strip("│* ")) for line in out.splitlines() if re.match("│[ *]+-", line)
        ]
        told = {name.partition("/")[0]: row[-1] for row in rows for name in row[:2]}
        for option in (p for p in command.params if isinstance(p, click.Option)):
            assert option.help, (path, option.name)
            assert told[option.opts[0]].split()[0] == option.help.split()[0], (path, option.name)


def test_help_shows_what_people_use_and_help_all_the_rest(capsys):
    """A dozen options or so; the rest stays usable, and its help is not far."""
    for path, command in commands(app):
        usual = getattr(command, "usual", ())
        named = {option.name: option.opts[0] for option in command.params}
        assert set(usual) <= set(named), path
        assert len(usual) <= 13
        if usual:
            short, whole = run(capsys, *path, "--help")[1], run(capsys, *path, "--help-all")[1]
            for name, flag in named.items():
                if flag.startswith("--"):
                    shown = re.search(rf"^│[ *]{{1,4}}{flag}\b(?!-)", short, re.M) is not None
                    assert shown == (name in (*usual, "help_all")), (path, flag)
                    assert flag in whole, (path, flag)
    assert len(app.commands["rank"].usual) == 13


def test_commands_come_in_groups(capsys):
    out = run(capsys, "--help")[1]
    assert re.findall(r"^╭─ (.+?) ─+╮$", out, re.M) == [
        "Options", "Look", "Ask", "Measure", "Serve", "This machine",
    ]  # fmt: skip
    assert {name for name in app.commands if re.search(rf"^│ {name} ", out, re.M)} == set(app.commands)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_of_the_shell(capsys, shell):
    code, out, _ = run(capsys, "completion", shell)
    assert (code, f"_FRAMENEST_COMPLETE={shell}_complete" in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("framenest comp", "plain,completion"),
        ("framenest rank --max-g", "plain,--max-gap"),  # also what --help leaves out
        ("framenest rank ki", "file,ki"),
        ("framenest rank kiln.mp4 Why --to fr", "dir,fr"),
        ("framenest report ki", "file,ki"),
    ],
)
def test_shells_complete_commands_options_and_files(capsys, monkeypatch, words, expected):
    monkeypatch.setenv("_FRAMENEST_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert run(capsys)[1].strip() == expected


def test_a_question_without_quotes(capsys):
    code, _, err = run(capsys, "rank", "kiln.mp4", "What", "is", "fired?")
    assert (code, err.count("\n")) == (2, 1)
    assert err.endswith("unexpected extra arguments (is fired?); put a question of several words in quotes\n")


def test_only_what_reproduces_the_paper_fuses_every_two_frames():
    found = {
        " ".join(path): option.default
        for path, command in commands(app)
        for option in command.params
        if option.name == "pairing"
    }
    assert found == {"ask": "auto", "export": "auto", "lmms-eval tasks": "pairs"}
    assert TaskSettings("videomme", "uniform").pairing == "pairs"


@pytest.mark.parametrize(
    "arguments",
    [
        ["select", "v.mp4", "Why?", "-k", "4", "--selector"],
        ["ask", "v.mp4", "Why?", "--base-url", "http://127.0.0.1:9/v1", "--selector"],
        ["evaluate", "recall", "q.json", "--scorer", "tags", "--selectors"],
    ],
    ids=lambda arguments: arguments[0] if arguments[0] != "evaluate" else arguments[1],
)  # fmt: skip
def test_selectors_are_named_alike_and_refused_before_the_work(capsys, arguments):
    for name, said in {
        "middling": "there is no selector 'middling'; choose from mec, min-gap, uniform, top-k, aks",
        "mec:best": "there is no preset 'best'; choose from paper",
    }.items():
        code, _, err = run(capsys, *arguments, name)
        assert (code, said in err) == (2, True), err


@pytest.mark.parametrize("columns", [80, 120])
def test_no_choice_is_broken_across_lines(capsys, monkeypatch, columns):
    """Of every command: presets, styles and the like can be read and copied whole."""
    monkeypatch.setenv("COLUMNS", str(columns))
    seen = set()
    for path, command in commands(app):
        out = help_of(capsys, path, command)[1]
        assert max(map(len, out.splitlines())) <= columns, path
        for option in (p for p in command.params if isinstance(p.type, click.Choice)):
            for choice in option.type.choices:
                assert re.search(rf"(?<![\w-]){re.escape(choice)}(?![\w-])", out), (path, option.name, choice)
                seen.add(choice)
    assert set(PRESETS) <= seen


def test_examples_can_be_copied_from_help(capsys, monkeypatch):
    """Each line of an example stands whole on a line of its own, at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    seen = 0
    for path, command in commands(app):
        shown = [line.strip() for line in run(capsys, *path, "--help")[1].splitlines()]
        for line in (command.help or "").partition("\b")[2].strip().splitlines():
            assert line.strip() in shown, (path, line)
            seen += "framenest " in line
    assert seen > 35


ASK = ("ask", "no.mp4", "Why?", "--base-url", "http://127.0.0.1:9/v1", "--retries", "0")
EXPORT = ("export", "no.json", "-k", "4")
SERVE = ("serve", "--videos", "no-folder", "--scorer", "table:no.csv")
TABLE = ("--scorer", "table:no.csv")
WITHOUT_EFFECT = [
    (("rank", "no.mp4", "--no-question"), ("--ocr", "on"), "with --no-question"),
    (("rank", "no.mp4", "Why?", *TABLE), ("--reranker", "blip2"), "without --rerank"),
    (("select", "no.mp4", "Why?", "-k", "4", *TABLE), ("--reranker", "blip2"), "without --rerank"),
    (ASK, ("--pairing", "pairs"), "style openai does not fuse frames"),
    (ASK, ("--transcript-tokens", "99"), "without --with-transcript"),
    *(
        (
            (*EXPORT, "--style", style, "-o", "-"),
            ("--pairing", "pairs"),
            f"style {style} does not fuse frames",
        )
        for style in ("openai", "hf-video", "internvl", "llava-onevision", "vlmevalkit")
    ),
    (EXPORT, ("--transcript-tokens", "99"), "without --with-transcript"),
    (("evaluate", "recall", "no.json", "--scorer", "tags"), ("--reranker", "blip2"), "without --rerank"),
    (SERVE, ("--transcript-tokens", "99"), "without --with-transcript"),
    ((*SERVE, "--subtitles", "none"), ("--with-transcript",), "with --subtitles none"),
    (SERVE, ("--tokens", "8000"), "without --upstream"),
    ((*SERVE, "--upstream", "http://localhost/v1"), ("--tiers",), "only --tokens has tiers"),
    ((*SERVE, "--upstream", "http://localhost/v1", "--tokens", "8000"), ("--budget", "4"), "--tokens says"),
    *(
        (("mcp", "no-folder", *TABLE), given, "without --http")
        for given in (("--host", "127.0.0.2"), ("--port", "8701"))
    ),
]


@pytest.mark.parametrize(("command", "given", "why"), WITHOUT_EFFECT)
def test_options_without_effect_are_refused(capsys, tmp_path, monkeypatch, command, given, why):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *command, *given)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith(f"error: {given[0]} has no effect: ")
    assert why in err
    code, _, err = run(capsys, *command)  # the same without it fails for its own reason
    assert (code, "has no effect" in err) == (2, False), err


def test_what_is_heard_is_a_transcript(capsys):
    heard = ("--subtitles", "none", "--listen-url", "http://localhost/v1", "--with-transcript")
    assert "no-folder: not a folder" in run(capsys, *SERVE, *heard)[2]


def test_the_commands_and_a_name_that_is_none(capsys):
    names = list(app.commands)
    assert {"rank", "lmms-eval", "evaluate"} <= set(names)
    assert [command.name for command in app.commands.values()] == names
    code, _, err = run(capsys, "rnk")
    assert (code, "No such command 'rnk'" in err) == (2, True)
