"""Which questions are taken for questions about something written: recall and false alarms on foreign ones.

    python benchmarks/recognition.py questions.json

The file is {"set": [["question", whether it asks for something written], …]}, made of public benchmarks by
their own categories ("OCR Problems" of Video-MME, "Text-Rich" of StreamingBench); they are not ours to
publish. The patterns were written with one half of each set in view, chosen by a hash of the question, and
with the tuning halves of our own; the other half counts. Writes results/recognition.json.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from machine import options, write

from framenest.scorers.question_text import asks_for


def held_out(question: str) -> bool:
    return hashlib.blake2b(question.encode(), digest_size=8).digest()[-1] % 2 == 1


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("questions", type=Path)
    sets = {}
    for name, rows in json.loads(parser.parse_args().questions.read_text()).items():
        taken = [(asks_for("text", text), asks) for text, asks in rows if held_out(text)]
        asking, others = ([yes for yes, asks in taken if asks is kind] for kind in (True, False))
        sets[name] = {
            "written": {"questions": len(asking), "recognised": sum(asking)},
            "others": {"questions": len(others), "taken for written": sum(others)},
        }
    print(write("recognition", {"sets": sets}).read_text())


if __name__ == "__main__":
    main()
