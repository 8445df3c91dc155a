"""What the speech cue gains where answers are only spoken, and costs where they are only seen.

    python benchmarks/speech.py qa.json --videos DIR --scorer tags

Every video of the question set gets a made transcript: sentences of an unrelated lecture (Python's own
documentation), and among them facts, each with a sentence on the same subject that does not answer its
question (spoken_facts.json). *Spoken*: the questions about the facts; a hit is a frame on screen while the
fact is said. *Seen*: the question set's own questions, whose answers nobody speaks of; a hit is a frame in
their intervals. Both with and without the transcript. The constants of the cue were set while looking at the
first 40 facts ("tune") and at the similarity of all seen questions to them; the other facts ("report") were
written afterwards and run for the cue, and again when rank 3 was reserved for speech; neither was adjusted
to them. A transcript holds facts of one part only. *Wrong words*: the same with --wrong percent of the words
wrong, as a recognizer leaves them: six of ten are replaced by another word of the facts, two are missing,
two have a word too many before them. Writes results/speech.json.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from machine import options, write

from framenest import ScorerConfig, Session
from framenest.evaluation import recall
from framenest.evaluation.grounded_questions import GroundedQuestion, load_questions
from framenest.evaluation.recall import collect

BUDGETS = (1, 2, 3, 4, 8, 16, 32, 64)
FACTS = json.loads((Path(__file__).parent / "spoken_facts.json").read_text())
CHARACTERS = 15.0  # a second of speech
ROW = 42  # characters of a subtitle
SHORTEST = 60.0  # seconds of a video that gets facts
VOCABULARY = sorted({word for said, _, other in FACTS for word in f"{said} {other}".split()})
PARTS = {"tune": range(40), "report": range(40, len(FACTS))}


def lecture() -> list[str]:
    """Sentences about something else."""
    prose = " ".join(" ".join(text.split()) for text in topics.values())
    plain = re.compile(r"[A-Z][A-Za-z0-9 ,;:'()-]{28,158}[.!?]")
    sentences = [s for s in re.split(r"(?<=[.!?])\s+", prose) if plain.fullmatch(s)]
    return list(dict.fromkeys(sentences))


def misheard(text: str, percent: float, draw: random.Random) -> str:
    """The text with this percentage of its words wrong."""
    words = list[str]()
    for word in text.split():
        if draw.random() * 100 >= percent:
            words.append(word)
            continue
        kind, other = draw.random(), draw.choice(VOCABULARY)
        words += [other] if kind < 0.6 else [other, word] if kind < 0.8 else []
    return " ".join(words)


def transcript(
    duration: float, seed: int, known: Sequence[int], percent: float = 0
) -> tuple[str, dict[int, tuple[float, float]]]:
    """A SubRip file for a video of so many seconds, and when each of the known facts in it is said.

    percent: of the words that are wrong.
    """
    draw = random.Random(seed)
    talk = lecture()
    draw.shuffle(talk)
    facts = draw.sample(known, min(len(known), int(duration / 20)))
    said: list[tuple[int | None, str]] = [(fact, FACTS[fact][0]) for fact in facts]
    said += [(None, FACTS[fact][2]) for fact in facts]
    while sum(len(text) / CHARACTERS + 1 for _, text in said) < 0.9 * duration:
        said.append((None, talk[len(said) % len(talk)]))
    draw.shuffle(said)
    now, number, rows, when = 0.0, 0, [], {}
    mishears = random.Random(seed)
    for fact, text in said:
        began = now
        for row in re.findall(rf".{{1,{ROW}}}(?:\s+|$)", text):
            number += 1
            end = now + len(row) / CHARACTERS
            heard = misheard(row, percent, mishears) or "…"
            rows.append(f"{number}\n{stamp(now)} --> {stamp(end)}\n{heard}\n")
            now = end
        if fact is not None and now < duration:
            when[fact] = (began, now)
        now += draw.choice([0.1, 0.3, 1.0, 2.5])
    return "\n".join(rows), when


def stamp(seconds: float) -> str:
    """00:01:02,500."""
    milliseconds = int(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d},{rest % 1000:03d}"


def measured(outcomes: list[recall.RecallOutcome], deaf: list[recall.RecallOutcome]) -> dict[str, Any]:
    """hit@K with the cue and without, and the paired difference with its 95 % interval."""
    found: dict[str, Any] = {}
    for budget in BUDGETS:
        with_cue, without = (recall.by_question(rows, budget, "hit") for rows in (outcomes, deaf))
        low, high = recall.interval_of_mean(with_cue - without)
        gain = [round(float(v), 4) for v in ((with_cue - without).mean(), low, high)]
        found[str(budget)] = {
            "with": round(with_cue.mean(), 4),
            "without": round(without.mean(), 4),
            "gain": gain,
        }
    return {"questions": len(outcomes), **found}


def write_transcripts(
    folder: Path, seen: Sequence[GroundedQuestion], session: Session, known: Sequence[int], percent: float
) -> list[GroundedQuestion]:
    """Write a transcript for every video; the questions about its facts."""
    spoken: list[GroundedQuestion] = []
    for seed, video in enumerate(dict.fromkeys(question.video for question in seen)):
        duration = session.open(video).info.duration
        text, when = transcript(duration, seed, known, percent)
        (folder / f"{Path(video).stem}.srt").write_text(text)
        if duration >= SHORTEST:
            spoken += [GroundedQuestion(video, FACTS[fact][1], (at,)) for fact, at in when.items()]
    return spoken


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("questions")
    parser.add_argument("--videos")
    parser.add_argument("--scorer", default="tags")
    parser.add_argument("--weight", type=float, action="append", help="λs; may be given again")
    parser.add_argument("--rules", default="paper,residual")
    parser.add_argument(
        "--wrong", type=float, action="append", help="percent of the words; may be given again"
    )
    arguments = parser.parse_args()
    seen = load_questions(arguments.questions, videos=arguments.videos)
    plain = Session(arguments.scorer)
    result: dict[str, Any] = {}
    wrong: dict[str, Any] = {}
    for part, known in PARTS.items():
        deaf: dict[tuple[str, str], list[recall.RecallOutcome]] = {}
        for percent in [0, *(arguments.wrong or [10, 20])]:
            into = wrong.setdefault(f"{percent:g}", {}) if percent else result
            with tempfile.TemporaryDirectory() as folder:
                spoken = write_transcripts(Path(folder), seen, plain, known, percent)
                hearing = Session(plain.scorer, scoring=ScorerConfig(subtitles=folder))
                for name, asked in {f"spoken, {part}": spoken, f"seen, {part}": seen}.items():
                    into[name] = {}
                    for rule in arguments.rules.split(","):
                        if (name, rule) not in deaf:
                            deaf[name, rule] = collect(asked, {"mec": f"mec:{rule}"}, BUDGETS, plain)["mec"]
                        for weight in (arguments.weight or [0.6])[: 1 if percent else None]:
                            spec = f"mec:{rule}+speech_weight={weight}"
                            outcomes = collect(asked, {"mec": spec}, BUDGETS, hearing)["mec"]
                            row = into[name][f"{rule}, λs {weight}"] = measured(outcomes, deaf[name, rule])
                            cells = [
                                f"{row[str(k)]['without']:.2f} → {row[str(k)]['with']:.2f}" for k in BUDGETS
                            ]
                            what = f"{name} ({len(asked)}), {percent:g} % wrong"
                            print(f"| {what} | {rule}, {weight} | {' | '.join(cells)} |", flush=True)
    print(write("speech", {"scorer": arguments.scorer, "sets": result, "wrong": wrong}))


if __name__ == "__main__":
    main()
