"""MEC, section 3 of the paper: sparse index, evidence discovery, ranking."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.directory import keep
from framenest.config import DEFAULT_PRESET, DiscoveryConfig, MECConfig, ScorerConfig, must_be
from framenest.errors import BudgetError, ConfigError, VideoError
from framenest.frames import Floats, Ints, Mask
from framenest.method import discovery
from framenest.method.cues import blank, change, encode, observability
from framenest.method.discovery import noisy_or, refine
from framenest.method.index import SparseIndex, choose_probes, index_key, stored_index, window
from framenest.method.ordering import RULES
from framenest.method.prefix import Prefix
from framenest.method.ranking import CandidatePool, Ranking, Stats
from framenest.progress import ShowProgress
from framenest.protocols import MatchStrength, Scorer, Store
from framenest.rank_request import Budget, LookFor, RankRequest
from framenest.scorers.feature_store import Features, finish_writes
from framenest.scorers.ocr import ScreenText
from framenest.scorers.question_text import asks_for
from framenest.scorers.video_features import NO_FRAMES, VideoFeatures, on_the_way
from framenest.session import Session
from framenest.video.decoder import Decoder
from framenest.video.opening import Video


class MEC:
    """Matryoshka Evidence-to-Context frame selection.

    Args:
        config: the settings; by default the paper's.
        scorer: a name ("auto" is the best one whose weights are on this machine), a Scorer, or None for
            rankings without a question.
        preset: a config by name (PRESETS): "residual" shows each event once before it repeats one.
        store, progress, keep_features, scoring: as for `Session`.
        session: share open videos and the scorer with other selectors, instead of the arguments above.
        settings: any setting of MECConfig and ScorerConfig by name, such as horizon=300, rerank=64 or zoom=4.
            They override the config or the preset.

    Raises:
        ConfigError: a setting does not exist or is out of range; or a session is given with arguments that it
            replaces, or a preset with a config.

    >>> mec = MEC(scorer="table:scores.csv", horizon=64)
    >>> ranking = mec.rank("kiln.mp4", "What happens after firing?")
    >>> ranking.prefix(8).budget, ranking.prefix(64).budget
    (8, 64)
    """

    def __init__(
        self,
        config: MECConfig | None = None,
        scorer: str | Scorer | None = "auto",
        *,
        preset: str | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        progress: ShowProgress = True,
        keep_features: bool | None = None,
        scoring: ScorerConfig | None = None,
        session: Session | None = None,
        **settings: Any,
    ) -> None:
        must_be("config", config, MECConfig | None, "a MECConfig (preset= takes a name)")
        must_be("session", session, Session | None, "a Session")
        of_scorer = [field.name for field in fields(ScorerConfig)]
        running = {name: settings.pop(name) for name in of_scorer if name in settings}
        if running:
            scoring = replace(scoring or ScorerConfig(), **running)
        own = (scorer, progress, store, keep_features, scoring)
        if session is not None and own != ("auto", True, None, None, None):
            raise ConfigError(
                "a session brings its own scorer, store, progress, keep_features and scoring with all its "
                "settings; give a session or those"
            )
        if preset is not None and config is not None:
            raise ConfigError("a preset is a config; give one or the other")
        self.config = (config or MECConfig.preset(preset or "paper")).with_settings(
            settings, also=["preset", *of_scorer]
        )
        self.session = session or Session(
            scorer, store=store, progress=progress, keep_features=keep_features, scoring=scoring
        )

    def rank(
        self,
        video: Video,
        question: str | None,
        *,
        options: Sequence[str] = (),
        look_for: LookFor | Sequence[str] = (),
        fps: float | None = None,
    ) -> Ranking:
        """Rank the frames of a video for a question.

        Args:
            video: a path, a URL, a folder of images, the bytes of a video file, a file object, frames in
                memory (an array (n, H, W, 3), or a list of Pillow images or arrays) or a Decoder.
            question: None ranks without a question.
            options: the possible answers; they are scored with the question if `relevance_text` is
                "question+options".
            look_for: descriptions to score with the question; a frame that shows any of them is relevant.
            fps: frames per second, for a folder of images or frames in memory.

        Returns:
            A ranking whose every prefix is a selection.
        """
        session, config = self.session, self.config
        if question is None:
            config = config.with_settings({"relevance_weight": 0.0})
        settings = config.discovery
        described = LookFor.of(look_for)
        must_be("question", question, str | None, "a string or None")
        texts = _texts(question, options, described, settings)
        began = session.timing.seconds
        with session.showing():
            decoder = session.open(video, fps)
            features = session.features(decoder, session.scorer_for(question), config.index.thumbnail)
            decoded = features.decoded

            # Section 3.2: the sparse index.
            index, probes = self._index(features, zooms=True)

            # Section 3.3: the evidence of the probes, and zoom frames around the best of them.
            reader = self._reader(question)
            scoring = _Scoring(session, features, index, probes, texts, reader)
            scored = scoring.probes()
            evidence = discovery.evidence(scored.cues, settings)
            active = discovery.activate(evidence, settings.segment_length, settings.activation)
            anchors = discovery.anchors(evidence, active, settings.segment_length, settings.anchors)
            wanted = discovery.zoom(index.frames, anchors, settings.zoom)
            zoomed, substitutes = features.get_or_nearest(wanted, index.frames, "zoom")
            spoken = scoring.spoken if settings.speech_weight else NO_FRAMES
            if len(spoken) and not np.isin(spoken, [*index.frames, *zoomed.frames]).any():
                # The last frame, too: if it does not decode, its substitute may be any frame of the passage.
                wanted = np.union1d(wanted, spoken[[len(spoken) // 2, -1]])
                zoomed, substitutes = features.get_or_nearest(wanted, index.frames, "zoom")

            # The candidate pool.
            scored = scoring.reranked(scored.join(scoring.zoomed(zoomed)))
            pool = CandidatePool(
                video=decoder.info,
                question=question,
                options=tuple(options),
                scorer=session.scoring_name(question, scoring.transcript if scoring.speech else None, reader),
                config=config,
                num_frames=index.num_frames,
                frames=scored.frames,
                seconds=decoder.seconds[scored.frames],
                is_zoom=~np.isin(scored.frames, index.frames),
                cues=scored.cues,
                evidence=discovery.evidence(scored.cues, settings),
                active=tuple(active),
                anchors=tuple(index.frames[anchors].tolist()),
                look_for=described,
                matches=scored.matches if described else {},
                transcript=scoring.transcript,
                certainty=scored.certainty,
                labels=tuple(scored.labels.tolist()),
            )

            # Section 3.4: the order.
            with session.timing("order"):
                rule, in_answer = RULES[config.ranking.rule], np.isin(scored.frames, spoken)
                ordered = rule.order(pool, scored.appearance, scored.blank, in_answer)
        stats = Stats(
            candidates=len(pool),
            probes=len(index),
            zoom=len(zoomed.frames),
            largest_gap_seconds=index.largest_gap,
            substitutes=(*map(tuple, index.substitutes.tolist()), *substitutes),
            decoded=features.decoded - decoded,
            seconds=session.timing.since(began),
            match=max(filter(None, scoring.strengths()), key=lambda one: one.order, default=None),
        )
        return Ranking(pool, ordered.order, ordered.terms, stats)

    def index(self, video: Video, *, fps: float | None = None, questions_follow: bool = False) -> SparseIndex:
        """The reusable index of a video: from memory, from the store, or built in one decoding pass.

        The same pass feeds the scorer, so that the next question decodes no probes.

        Args:
            video, fps: as for `rank`.
            questions_follow: keep the frames that questions may zoom to as the decoder passes them, up to
                128 MiB, so that questions in the same session decode next to nothing.
        """
        with self.session.showing():
            decoder = self.session.open(video, fps)
            features = self.session.features(decoder, self.session.scorer, self.config.index.thumbnail)
            index, _ = self._index(features, zooms=questions_follow)
            if features.scorer is not None:
                self.session.heard(decoder, *index.span)  # encodes the transcript for the questions
            if self.session.scoring.ocr == "on" and self.session.reader is not None:
                screens = self.session.features(decoder, self.session.reader, self.config.index.thumbnail)
                screens.get(index.frames, "text")
            finish_writes()  # for questions in other processes
            return index

    def scoring_name(self, decoder: Decoder, question: str | None) -> str:
        """The names of everything that scores this video: the `Ranking.scorer` of a ranking."""
        start, end = decoder.seconds[list(window(decoder.seconds, self.config.index))].tolist()
        transcript, speech = self.session.heard(decoder, start, end)
        said = transcript if speech is not None else None
        return self.session.scoring_name(question, said, self._reader(question))

    def _reader(self, question: str | None) -> Scorer | None:
        """The scorer that reads text on screen, if it counts for a question."""
        wanted = question is not None and self.config.discovery.written and asks_for("text", question)
        return self.session.reader if wanted else None

    def _index(self, features: VideoFeatures, *, zooms: bool) -> tuple[SparseIndex, Features]:
        """Section 3.2: the index of a video, and the features of its probes.

        zooms: keep the frames that a question may zoom to, if the decoder passes them.
        """
        session, decoder = self.session, features.decoder
        key = index_key(decoder, self.config.index)
        index = session.keep(
            ("index", key),
            lambda: stored_index(session.store, key) or self._build_index(features, key, zooms),
        )
        if index.video != decoder.info:  # the same content at another path
            index = replace(index, video=decoder.info)
        passing = self._passing(decoder, index.frames, zooms)
        return index, features.get(index.frames, "probes", passing)

    def _build_index(self, features: VideoFeatures, key: str, zooms: bool) -> SparseIndex:
        decoder, config = features.decoder, self.config.index
        (first, last), wanted = choose_probes(decoder, config)
        passing = self._passing(decoder, wanted, zooms)
        probes, substitutes = features.get_or_nearest(wanted, wanted, "probes", first=first, passing=passing)
        if not len(probes.frames):
            raise VideoError(f"{decoder.info.path}: none of the {len(wanted)} probes can be decoded")
        with self.session.timing("cues"):
            appearance = encode(probes.thumbnails)
            index = SparseIndex(
                video=decoder.info,
                frames=probes.frames,
                seconds=decoder.seconds[probes.frames],
                thumbnails=probes.thumbnails,
                change=change(probes.frames, appearance, probes.frames, appearance),
                observability=observability(probes.thumbnails, config),
                config=config,
                window=(first, last),
                span=(float(decoder.seconds[first]), float(decoder.seconds[last])),
                substitutes=np.array(substitutes, dtype=np.int64).reshape(-1, 2),
            )
        keep(self.session.store, key, index.header(), index.arrays())
        return index

    def _passing(self, decoder: Decoder, probes: Ints, zooms: bool) -> Ints:
        """The frames that a question may zoom to and that the decoder passes on the way to the probes."""
        if not zooms:
            return NO_FRAMES
        possible = discovery.zoom(probes, list(range(len(probes))), self.config.discovery.zoom)
        return on_the_way(decoder.key_frames, probes, possible)


def _texts(
    question: str | None, options: Sequence[str], look_for: LookFor | None, config: DiscoveryConfig
) -> list[str | None]:
    """The texts that frames are matched with: the question and each description."""
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise ConfigError(f"options must be a list of strings, not {options!r}")
    if question is None:
        if look_for is not None:
            raise ConfigError("look_for needs a question; give a question, too")
        return [None]
    text = with_options(question, options) if config.relevance_text == "question+options" else question
    return [text, *(look_for.texts if look_for else ())]


@dataclass(frozen=True)
class _Scored:
    """Frames with their cues, the relevance of each text by itself, how they look and their labels."""

    frames: Ints
    cues: dict[str, Floats]
    matches: dict[str, Floats]
    appearance: Floats
    blank: Mask
    certainty: Floats  # of each frame, the surest text; or none at all
    labels: NDArray[np.object_]  # of each frame, or none at all

    def join(self, other: _Scored) -> _Scored:
        """These and other frames, in order of time."""
        order = np.argsort(np.concatenate([self.frames, other.frames]), kind="stable")

        def both(mine: Any, theirs: Any) -> Any:
            if isinstance(mine, dict):
                return {name: both(column, theirs[name]) for name, column in mine.items()}
            joined = np.concatenate([mine, theirs])
            return joined[order] if len(joined) else joined

        return _Scored(**{name: both(mine, getattr(other, name)) for name, mine in vars(self).items()})


class _Scoring:
    """Multi-cue evidence scoring: the cues of probes and of zoom frames for one question."""

    def __init__(
        self,
        session: Session,
        features: VideoFeatures,
        index: SparseIndex,
        probes: Features,
        texts: Sequence[str | None],
        reader: Scorer | None,
    ) -> None:
        self._session, self._features, self._index = session, features, index
        self._probes, self._texts, self._question = probes, texts, texts[0]
        decoder = features.decoder
        self.transcript, self.speech = session.heard(decoder, *index.span)
        self.screen: ScreenText | None = None
        self._strengths = [features.match_strength(probes, text) for text in texts]
        self.spoken = NO_FRAMES
        """The frames of the passage that answers the question; none if no passage does."""
        if self._question is not None and reader is not None:
            screens = session.features(decoder, reader, index.config.thumbnail)
            self.screen = ScreenText(screens, self._question, session.encoder, session.store)
        if self._question is not None and self.speech is not None:
            first, last = index.window
            self.spoken = first + self.speech.on_screen(decoder.seconds[first : last + 1], self._question)

    def strengths(self) -> list[MatchStrength | None]:
        """How strongly the probes match each text; what is written decides where it is asked for."""
        if self.screen is None:
            return self._strengths
        return [self.screen.match_strength(), *self._strengths[1:]]

    def probes(self) -> _Scored:
        """The index knows their change and observability."""
        index = self._index
        return self._scored(self._probes, index.appearance, index.change, index.observability)

    def zoomed(self, zoomed: Features) -> _Scored:
        """Zoom frames; their change is relative to the probes around them."""
        index = self._index
        with self._session.timing("zoom"):
            appearance = encode(zoomed.thumbnails)
            changed = change(zoomed.frames, appearance, index.frames, index.appearance)
            observable = observability(zoomed.thumbnails, index.config)
        return self._scored(zoomed, appearance, changed, observable)

    def _scored(self, features: Features, appearance: Floats, changed: Floats, observable: Floats) -> _Scored:
        video, frames = self._features, features.frames
        matches = [video.relevance(features, text, self._probes) for text in self._texts]
        by_text = [video.labels(features, text, self._probes) for text in self._texts]
        best = np.argmax(matches, axis=0)  # a reason is that of the text that matches best
        labels = [by_text[which][row] for row, which in enumerate(best)] if all(by_text) else []
        graded = self._strengths[0] is not None and video.is_relative
        sure = [video.certainty(features, text) for text in self._texts if text is not None] if graded else []
        if self.screen is not None:
            matches[0], labels, certain = self.screen.join(frames, matches[0], labels)
            sure[:1] = [certain]
        cues = {"relevance": noisy_or(matches), "change": changed, "observability": observable}
        if self._question is not None and self.speech is not None:
            seconds, every = video.decoder.seconds[frames], features is self._probes
            cues["speech"] = self.speech.cue(seconds, self._question, every_passage=every)
        of_texts = {text: match for text, match in zip(self._texts, matches, strict=True) if text}
        looks_blank = blank(features.thumbnails)
        reasons = np.array(labels, dtype=object)
        certainty = np.max(sure, axis=0) if sure else np.zeros(0, dtype=np.float32)
        return _Scored(frames, cues, of_texts, appearance, looks_blank, certainty, reasons)

    def reranked(self, scored: _Scored) -> _Scored:
        """The same, with the relevance of a second pass over the best; unchanged without a reranker."""
        session = self._session
        if self._question is None or session.reranker is None:
            return scored
        relevance = scored.cues["relevance"]
        again = np.sort(discovery.best(relevance, session.scoring.rerank))
        features = session.features(self._features.decoder, session.reranker, self._index.config.thumbnail)
        best = features.get(scored.frames[again], "rerank")
        judged = noisy_or([features.relevance(best, text, best) for text in self._texts])
        return replace(scored, cues=scored.cues | {"relevance": refine(relevance, again, judged)})


def rank_request(request: RankRequest, session: Session, opened: Decoder | None = None) -> Ranking:
    """The ranking that a request asks for, with the scorer of a session. opened: its video, if it is open."""
    return MEC(request.config, session=session).rank(
        request.video if opened is None else opened,
        request.question,
        options=request.options,
        look_for=request.look_for or (),
        fps=request.opening.fps if opened is None else None,
    )


def rank(
    video: Video,
    question: str | None,
    k: int = 8,
    *,
    options: Sequence[str] = (),
    look_for: LookFor | Sequence[str] = (),
    fps: float | None = None,
    **settings: Any,
) -> Prefix:
    """Choose the k frames of a video that answer a question, in one call.

    Args:
        video, question, options, look_for, fps: as for `MEC.rank`.
        k: how many frames.
        settings: arguments of `MEC`: scorer="tags", max_gap=2, … The preset is "residual" by default, unless
            a config is given; "paper" is the paper's rule.

    Returns:
        The frames in time order. For other budgets and further questions, use `MEC` and keep its `Ranking`:
        then nothing runs twice.

    Raises:
        BudgetError: k exceeds the ranks that the ranking would have; raised before the work.

    >>> rank("kiln.mp4", "What happens after firing?", 2, scorer="table:scores.csv").frames
    array([  8, 159])
    """
    if other := {"budget", "budgets", "frames", "n"} & settings.keys():
        raise ConfigError(f"there is no setting {min(other)!r}; did you mean 'k'?")
    if settings.get("config") is None:
        settings.setdefault("preset", DEFAULT_PRESET)
    mec = MEC(**settings)
    opened = mec.session.open(video, fps)
    check_horizon([k], opened, mec.config)
    return mec.rank(opened, question, options=options, look_for=look_for).prefix(k)


def check_horizon(budgets: Sequence[int], video: Decoder, config: MECConfig) -> None:
    """Raise BudgetError, before the work, for a budget that a ranking of the video cannot serve."""
    for budget in budgets:
        Budget(budget)
    horizon = config.ranking.horizon
    if budgets and max(budgets) > horizon and len(choose_probes(video, config.index)[1]) > horizon:
        raise BudgetError(
            f"a ranking of {horizon} ranks is too short for a budget of {max(budgets)}; "
            f"give horizon={max(budgets)}"
        )


def with_options(question: str, options: Sequence[str]) -> str:
    """The question and its options as one string, for relevance.

    >>> with_options("What is it?", ["a cup", "a kiln"])
    'What is it? a cup a kiln'
    """
    return " ".join([question, *options])
