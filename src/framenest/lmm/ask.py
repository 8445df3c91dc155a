"""Ask a model a question with frames, and with more if it cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from framenest.errors import ModelError
from framenest.image_tokens import TokenBudget
from framenest.images import ImageLimits
from framenest.lmm import prompt
from framenest.lmm.client import Answer, Answerer, OnText
from framenest.lmm.messages import StyleName, check_style, messages
from framenest.lmm.prompt import Pairing
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.progress import ShowProgress
from framenest.rank_request import Budget
from framenest.selectors.selection import Selection
from framenest.transcript import Transcript
from framenest.video.opening import Video


@dataclass(frozen=True, eq=False)
class Step:
    """One step of the ladder: a prefix and the model's answer to it.

    Attributes:
        prefix: the frames that were sent.
        answer: the model's answer and its cost.
        cannot_tell: whether the model said that the frames do not show the answer.
        estimated_tokens: the request's estimated size.
    """

    prefix: Prefix
    answer: Answer
    cannot_tell: bool
    estimated_tokens: int

    def to_json(self) -> dict[str, Any]:
        """The step as `framenest ask --json` prints it."""
        return {
            "budget": self.prefix.budget,
            "frames_sent": len(self.prefix),
            "estimated_tokens": self.estimated_tokens,
            **self.answer.usage.to_json(),
            "cannot_tell": self.cannot_tell,
            "answer": self.answer.text,
        }


@dataclass(frozen=True, eq=False)
class Reply:
    """The answer to a question, and the steps that led to it.

    Attributes:
        question: as asked.
        steps: one per budget tried; the last one has the answer.
        cited: places in the last prefix, ascending, of the frames whose times the answer cites.
        not_shown: times that the answer cites, as it writes them, of which no frame was shown.
    """

    question: str
    steps: list[Step]
    cited: list[int]
    not_shown: list[str]

    @property
    def answer(self) -> Answer:
        """The last step's answer."""
        return self.steps[-1].answer

    @property
    def prefix(self) -> Prefix:
        """The frames that the answer is based on."""
        return self.steps[-1].prefix

    def to_json(self) -> dict[str, Any]:
        """The object that `framenest ask --json` prints."""
        prefix, answer = self.prefix, self.answer
        return {
            "question": self.question,
            "answer": answer.text,
            "reasoning": answer.reasoning,
            "finish_reason": answer.finish_reason,
            "model": answer.model,
            "budget": prefix.budget,
            "frames": [
                {"frame": frame, "seconds": seconds, "rank": rank, "cited": place in self.cited}
                for place, (rank, seconds, frame) in enumerate(prefix)
            ],
            "not_shown": self.not_shown,
            "steps": [step.to_json() for step in self.steps],
        }


def ask(
    answerer: Answerer,
    chosen: Ranking | Selection,
    question: str,
    budgets: int | TokenBudget | Sequence[int],
    *,
    options: Sequence[str] = (),
    style: StyleName = "openai",
    pairing: Pairing = "auto",
    limits: ImageLimits | None = None,
    tell_times: bool | None = None,
    transcript: Transcript | None = None,
    transcript_tokens: int = prompt.TOKENS,
    video: Video | None = None,
    progress: ShowProgress = True,
    on_text: OnText | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Reply:
    """Ask with the smallest budget; retry with the next larger one if the model says that it cannot tell.

    The last budget does not offer that reply. A question without options also asks for the times of the
    frames that show the answer (`Reply.cited`). A server that takes fewer images gets the best of them.

    Args:
        answerer: a `Client`, or anything with its `answer`.
        chosen: the ranking or selection whose prefixes are shown.
        question: what to ask.
        budgets: one frame budget, or several to try in ascending order; or a budget in tokens.
        options: the options of a multiple-choice question; the model answers with a letter.
        style, pairing, limits, tell_times, transcript, transcript_tokens: as for `messages`.
        video: the open video, or its path; by default the path in the ranking.
        progress: as for `messages`.
        on_text: called with ("reasoning" or "answer", piece) as an answer arrives.
        on_step: called after each step.

    Returns:
        The steps up to the first answer, and the frames that it cites.

    Raises:
        BudgetError: no budget is given, or the ranking cannot serve one.
        ConfigError: the style cannot send this.
        ModelError: the model gave no answer.

    >>> reply = ask(client, ranking, "What happens after firing?", [8, 16, 32])
    >>> reply.answer.text, [step.prefix.budget for step in reply.steps]
    ('A kiln.', [8])
    """
    rungs: list[Any] = [budgets]
    if not isinstance(budgets, TokenBudget):
        rungs = Budget.ladder(budgets if isinstance(budgets, Iterable) else [budgets])
    record = check_style(style, pairing)
    steps: list[Step] = []
    while True:
        budget = rungs[len(steps)]
        prefix = chosen.prefix(budget)
        last = budget == rungs[-1] or prefix.complete
        most = getattr(answerer, "most_images", None) if record.sends == "images" else None
        if most is not None and most < len(prefix):
            prefix, last = prefix.best(most), True
        instructions = ([] if options else [prompt.CITE]) + ([] if last else [prompt.OTHERWISE])
        request = messages(
            prefix,
            question,
            style,
            options=options,
            instructions=instructions,
            pairing=pairing,
            limits=limits,
            tell_times=tell_times,
            transcript=transcript,
            transcript_tokens=transcript_tokens,
            video=video,
            progress=progress,
        )
        try:
            answer = answerer.answer(request, on_text=on_text)
        except ModelError:
            if getattr(answerer, "most_images", most) == most:
                raise
            continue  # now that the limit is known
        stuck = not last and prompt.cannot_tell(answer.text)
        steps.append(Step(prefix, answer, stuck, request.tokens.total))
        if on_step is not None:
            on_step(steps[-1])
        if not stuck:
            break
    seconds = steps[-1].prefix.seconds.tolist()
    if record.fuses:  # the model reads one time per pair
        seconds = prompt.model_seconds(pairing, seconds)
    text = steps[-1].answer.text
    return Reply(question, steps, prompt.cited_places(text, seconds), prompt.not_shown(text, seconds))
