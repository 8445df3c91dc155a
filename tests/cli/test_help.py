"""Every command has its help; commands that share options share them whole."""

import re
from dataclasses import fields

import pytest
import rich_click as click

import framenest
from command_line import commands, run
from framenest.cli import app
from framenest.cli.option_groups import AnsweringModel
from framenest.config import PRESETS
from framenest.evaluation.lmms_eval.tasks import TaskSettings
from framenest.evaluation.qa_run import QaSettings


def test_version(capsys):
    assert run(capsys, "--version")[:2] == (0, f"framenest, version {framenest.__version__}\n")


def test_every_option_of_every_command_says_what_it_does(capsys):
    for path, command in commands(app):
        code, out, err = run(capsys, *path, "--help")
        assert (code, err) == (0, ""), path
        assert f"Usage: framenest {' '.join(path)}" in out
        rows = [
            re.split(r" {2,}", line.strip("│* ")) for line in out.splitlines() if re.match("│[ *]+-", line)
        ]
        told = {name.partition("/")[0]: row[-1] for row in rows for name in row[:2]}
        for option in (p for p in command.params if isinstance(p, click.Option)):
            assert option.help, (path, option.name)
            assert told[option.opts[0]].split()[0] == option.help.split()[0], (path, option.name)


def test_only_what_reproduces_the_paper_fuses_every_two_frames():
    found = {
        " ".join(path): option.default
        for path, command in commands(app)
        for option in command.params
        if option.name == "pairing"
    }
    assert found == {"ask": "auto", "export": "auto", "evaluate qa": "pairs"}
    assert (QaSettings("videomme", "m").pairing, TaskSettings("videomme").pairing) == ("pairs", "pairs")


@pytest.mark.parametrize("name", ["ask", "evaluate qa"])
def test_commands_that_ask_a_model_take_the_same_options_for_it(name):
    command = app
    for word in name.split():
        command = command.commands[word]
    model = {p.name for p in command.params if getattr(p, "panel", None) == "The model"}
    assert model == {field.name for field in fields(AnsweringModel)}


@pytest.mark.parametrize(
    "arguments",
    [
        ["select", "v.mp4", "Why?", "-k", "4", "--selector"],
        ["ask", "v.mp4", "Why?", "--base-url", "http://127.0.0.1:9/v1", "--selector"],
        ["evaluate", "recall", "q.json", "--scorer", "tags", "--selectors"],
        ["evaluate", "qa", "--dataset", "mlvu", "--annotations", "a", "--videos", "v", "--base-url", "http://h",
         "--selectors"],
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
        out = run(capsys, *path, "--help")[1]
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
QA = ("evaluate", "qa", "--dataset", "mlvu", "--annotations", "a", "--videos", "v", "--base-url", "http://h")
EXPORT = ("export", "no.json", "-k", "4")
SERVE = ("serve", "--videos", "no-folder", "--scorer", "table:no.csv")
TABLE = ("--scorer", "table:no.csv")
WITHOUT_EFFECT = [
    (("rank", "no.mp4", "Why?", *TABLE), ("--text-weight", "0.5"), "without --ocr"),
    (("rank", "no.mp4", "--no-question"), ("--text-weight", "0.5"), "with --no-question"),
    (("rank", "no.mp4", "Why?", *TABLE, "--subtitles", "none"), ("--speech-weight", "1"), "--subtitles none"),
    (("rank", "no.mp4", "Why?", *TABLE), ("--reranker", "blip2"), "without --rerank"),
    (("select", "no.mp4", "Why?", "-k", "4", *TABLE), ("--reranker", "blip2"), "without --rerank"),
    (ASK, ("--pairing", "pairs"), "style openai does not fuse frames"),
    (ASK, ("--transcript-tokens", "99"), "without --with-transcript"),
    (ASK, ("--tokens-per-frame", "99"), "for --max-tokens only"),
    ((*QA, "--selectors", "uniform"), ("--pairing", "auto"), "style openai does not fuse frames"),
    *(
        (
            (*EXPORT, "--style", style, "-o", "-"),
            ("--pairing", "pairs"),
            f"style {style} does not fuse frames",
        )
        for style in ("openai", "hf-video", "internvl", "llava-onevision", "aks", "vlmevalkit")
    ),
    (EXPORT, ("--transcript-tokens", "99"), "without --with-transcript"),
    ((*QA, "--selectors", "uniform"), ("--reranker", "blip2"), "without --rerank"),
    (SERVE, ("--transcript-tokens", "99"), "without --with-transcript"),
    ((*SERVE, "--subtitles", "none"), ("--with-transcript",), "with --subtitles none"),
    (EXPORT, ("--tokens-per-frame", "99"), "for --max-tokens only"),
    *(
        (("mcp", "no-folder", *TABLE), given, "without --http")
        for given in (("--host", "127.0.0.2"), ("--port", "8701"), ("--token", "0123456789abcdef"))
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


def test_the_commands_and_a_name_that_is_none(capsys):
    names = list(app.commands)
    assert {"rank", "lmms-eval", "evaluate"} <= set(names)
    assert [command.name for command in app.commands.values()] == names
    code, _, err = run(capsys, "rnk")
    assert (code, "No such command 'rnk'" in err) == (2, True)
