"""MEC: joins the stages of the paper's section 3. Video → index → discovery → ranking."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.config import MECConfig, ScorerConfig
from framenest.errors import BudgetError, ConfigError
from framenest.method import discovery
from framenest.method.candidate_pool import CandidatePool, Stats
from framenest.method.cues import change, encode, observability
from framenest.method.discovery import LookFor, noisy_or, refine
from framenest.method.index import SparseIndex, choose_probes, window
from framenest.method.indexing import Indexing
from framenest.method.ordering import RULES
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.progress import ShowProgress, Timing
from framenest.protocols import Decoder, Scorer, Store
from framenest.scorers.feature_store import Features
from framenest.scorers.video_features import FeatureCache
from framenest.session import Session, Video


class MEC:
    """Matryoshka Evidence-to-Context frame selection.

    Args:
        config: the paper's settings unless told otherwise.
        scorer: a name ("auto" is the best one whose weights are on this machine), a Scorer, or None for
            rankings without a question.
        preset: a config by name (PRESETS): "residual" shows no event twice before others were shown once.
        store: a directory, an address (s3://…) or a Store for indexes and features; by default the user's
            cache.
        progress: bars on a terminal or in a notebook when work takes over a second; False for none, or a
            function that is called as progress(stage, done, total).
        keep_features: keep features of any size in the store, or none; by default up to 512 MiB a video.
        scoring: how the scorer runs, a second pass, text on screen.
        session: share open videos and the scorer with other selectors, instead of the arguments above.
        settings: any setting of the method or the scorer by its name in MECConfig and ScorerConfig, which
            is that of its option on the command line: horizon=300 is --horizon 300, max_gap=2 is
            --max-gap 2, rerank=64 is --rerank 64. They come on top of the config or the preset.

    Raises:
        ConfigError: a setting that does not exist or is out of its range, a session together with what it
            already has, or a preset with a config.

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
        running = {f.name: settings.pop(f.name) for f in fields(ScorerConfig) if f.name in settings}
        if running:
            scoring = replace(scoring or ScorerConfig(), **running)
        own = scorer != "auto" or progress is not True
        own = own or any(one is not None for one in (store, scoring, keep_features))
        if session is not None and own:
            raise ConfigError(
                "a session brings its own scorer, store, progress, keep_features and scoring with all its "
                "settings; give a session or those"
            )
        if preset is not None and config is not None:
            raise ConfigError("a preset is a config; give one or the other")
        self.config = (config or MECConfig.preset(preset or "paper")).with_settings(settings)
        self.session = session or Session(
            scorer, store=store, progress=progress, keep_features=keep_features, scoring=scoring
        )

    @property
    def scorer(self) -> Scorer | None:
        """The scorer in use; loaded when first needed."""
        return self.session.scorer

    def rank(
        self,
        video: Video,
        question: str | None,
        *,
        options: Sequence[str] = (),
        look_for: LookFor | Sequence[str] = (),
        fps: float | None = None,
    ) -> Ranking:
        """One ranking of the video's frames for a question.

        Args:
            video: a path, an address, a folder of images, an array of frames (n, H, W, 3) or a Decoder.
            question: None ranks without a question.
            options: the answers to choose from; frames are scored against them too where `relevance_text` is
                "question+options".
            look_for: descriptions to score beside the question: a frame that shows one of them is relevant.
            fps: frames per second, for a folder of images or an array of frames.

        Returns:
            A ranking whose every prefix is a selection.
        """
        before = self.session.timing.seconds
        with self.session.showing():
            self.session.check_question(question)
            indexing = Indexing(self.session, self.config, scored=question is not None, zooms=True)
            cache, kept = indexing.begin(video, fps)
            decoded = cache.decoded
            index, probes = indexing.finish(cache, kept)
            pool = self._discover(cache, index, probes, question, tuple(options), LookFor.of(look_for))
        return self.order(self._measured(pool, before, cache.decoded - decoded))

    def index(self, video: Video, *, fps: float | None = None, questions_follow: bool = False) -> SparseIndex:
        """The reusable index of a video: from memory, from the store, or built in one decoding pass.

        The same pass feeds the scorer, so that a question asked next decodes no probe again.

        Args:
            video: as for `rank`.
            fps: as for `rank`.
            questions_follow: hold frames that questions may zoom to as decoding passes them, at most
                128 MiB, so that questions to `session` decode next to nothing.
        """
        with self.session.showing():
            indexing = Indexing(self.session, self.config, scored=True, zooms=questions_follow)
            cache, kept = indexing.begin(video, fps)
            index = indexing.finish(cache, kept)[0]
            if self.scorer is not None:
                self.session.heard(cache.decoder, *index.span)  # encoded now, for the questions
            cache.finish()  # whoever asks next, in whatever process, finds it
            return index

    def scoring_name(self, decoder: Decoder, question: str | None) -> str:
        """Everything that gives the numbers of a ranking of this video, by name: its `Ranking.scorer`."""
        first, last = window(decoder.seconds, self.config.index)
        span = float(decoder.seconds[first]), float(decoder.seconds[last])
        transcript, speech = self.session.heard(decoder, *span)
        return self.session.scoring_name(question, transcript if speech is not None else None)

    def discover(
        self,
        index: SparseIndex,
        question: str | None,
        *,
        options: Sequence[str] = (),
        look_for: LookFor | Sequence[str] = (),
    ) -> CandidatePool:
        """Score the probes, zoom in where the evidence is, and gather all candidates."""
        before = self.session.timing.seconds
        with self.session.showing():
            scorer = self.session.scorer_for(question)
            cache = self.session.features(self.session.reopen(index.video), scorer, index.config.thumbnail)
            decoded = cache.decoded
            probes = cache.see(index.frames, "probes")
            pool = self._discover(cache, index, probes, question, tuple(options), LookFor.of(look_for))
        return self._measured(pool, before, cache.decoded - decoded)

    def order(self, pool: CandidatePool) -> Ranking:
        """Rank the candidates of a pool."""
        appearance = pool.appearance
        if appearance is None:
            raise ConfigError("this pool was read from a file, without appearance; rank the video again")
        pool = replace(pool, config=replace(pool.config, ranking=self.config.ranking))
        timing = Timing()
        with timing("order"):
            found = RULES[self.config.ranking.rule].order(pool, appearance)
        stats = replace(pool.stats, seconds={**pool.stats.seconds, **timing.seconds})
        return Ranking(replace(pool, stats=stats, appearance=None), found.order, found.terms)

    def _measured(self, pool: CandidatePool, before: Mapping[str, float], decoded: int) -> CandidatePool:
        seconds = self.session.timing.since(before)
        return replace(pool, stats=replace(pool.stats, decoded=decoded, seconds=seconds))

    def _discover(
        self,
        cache: FeatureCache,
        index: SparseIndex,
        probes: Features,
        question: str | None,
        options: tuple[str, ...],
        look_for: LookFor | None,
    ) -> CandidatePool:
        session, decoder = self.session, cache.decoder
        if question is None and look_for is not None:
            raise ConfigError("descriptions are looked for beside a question; give a question, too")
        config = replace(self.config, index=index.config)
        if question is None:
            config = config.with_settings({"relevance_weight": 0.0})
        settings = config.discovery
        asked = question
        if question is not None and settings.relevance_text == "question+options":
            asked = with_options(question, options)
        text = session.screen_text(decoder, asked, index.config.thumbnail)
        transcript, speech = session.heard(decoder, *index.span)

        texts = [asked, *(look_for.texts if look_for else ())]
        matches = [cache.relevance(probes, one, probes) for one in texts]
        cues = {"relevance": noisy_or(matches), "change": index.change, "observability": index.observability}
        if text is not None:
            cues["text"] = text.cue(index.frames)
        if speech is not None and asked is not None:
            cues["speech"] = speech.cue(index.seconds, asked, every_passage=True)
        scores = discovery.evidence(cues, settings)
        active = discovery.activate(scores, settings.segment_length, settings.activation)
        anchors = discovery.anchors(scores, active, settings.segment_length, settings.anchors)
        wanted = discovery.zoom(index.frames, anchors, settings.zoom)
        zoomed, substitutes = cache.see_or_replace(wanted, index.frames, "zoom")
        zoom_matches = [cache.relevance(zoomed, one, probes) for one in texts]
        zoom_cues = {"relevance": noisy_or(zoom_matches)}
        with session.timing("zoom"):
            vectors = encode(zoomed.thumbnails)
            zoom_cues["change"] = change(zoomed.frames, vectors, index.frames, index.appearance)
            zoom_cues["observability"] = observability(zoomed.thumbnails, index.config)
        if text is not None:
            zoom_cues["text"] = text.cue(zoomed.frames)
        if speech is not None and asked is not None:
            zoom_cues["speech"] = speech.cue(decoder.seconds[zoomed.frames], asked)

        frames = np.concatenate([index.frames, zoomed.frames])
        order = np.argsort(frames, kind="stable")
        frames = frames[order]
        joined = {name: np.concatenate([cue, zoom_cues[name]])[order] for name, cue in cues.items()}
        if asked is not None:
            joined["relevance"] = self._rerank(decoder, frames, joined["relevance"], texts)
        each = [np.concatenate(both)[order] for both in zip(matches, zoom_matches, strict=True)]
        strengths = [cache.match_strength(probes, one) for one in texts]
        return CandidatePool(
            video=index.video,
            question=question,
            options=options,
            scorer=session.scoring_name(question, transcript if speech is not None else None),
            config=config,
            num_frames=index.num_frames,
            frames=frames,
            seconds=decoder.seconds[frames],
            is_zoom=order >= len(index),
            cues=joined,
            evidence=discovery.evidence(joined, settings),
            active=tuple(active),
            anchors=tuple(int(index.frames[a]) for a in anchors),
            stats=Stats(
                candidates=len(frames),
                probes=len(index),
                zoom=len(zoomed.frames),
                largest_gap_seconds=index.largest_gap,
                substitutes=(*map(tuple, index.substitutes.tolist()), *substitutes),
                decoded=0,
                seconds={},
                match=max(filter(None, strengths), key=lambda one: one.value, default=None),
                read=None if text is None else text.read,
            ),
            look_for=look_for,
            matches={one: each[i] for i, one in enumerate(texts) if one} if look_for else {},
            transcript=transcript,
            appearance=np.concatenate([index.appearance, vectors])[order],
        )

    def _rerank(
        self,
        decoder: Decoder,
        frames: NDArray[np.int64],
        relevance: NDArray[np.float32],
        texts: Sequence[str | None],
    ) -> NDArray[np.float32]:
        """Relevance with the best candidates judged again; as it is without a second pass."""
        session, reranker = self.session, self.session.reranker
        if reranker is None:
            return relevance
        again = np.sort(discovery.best(relevance, session.scoring.rerank))
        cache = session.features(decoder, reranker, self.config.index.thumbnail)
        seen = cache.see(frames[again], "rerank")
        return refine(relevance, again, noisy_or([cache.relevance(seen, one, seen) for one in texts]))


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
    """The k frames of a video to look at for a question, in one call.

    Args:
        video: a path, an address, a folder of images, an array of frames (n, H, W, 3) or a Decoder.
        question: None chooses without a question.
        k: how many frames.
        options, look_for: answers to choose from and descriptions of what to look for, as for `MEC.rank`.
        fps: frames per second, for a folder of images or an array of frames.
        settings: what `MEC` takes: preset="residual", scorer="tags", max_gap=2, …

    Returns:
        The frames in time order. For other budgets and further questions keep a `MEC` and the `Ranking`
        it makes: nothing runs again for them.

    Raises:
        BudgetError: more frames than the ranking would have ranks; said before the work.

    >>> rank("kiln.mp4", "What happens after firing?", 2, scorer="table:scores.csv").frames
    array([152, 159])
    """
    mec = MEC(**settings)
    opened = mec.session.open(video, fps)
    check_horizon([k], opened, mec.config)
    return mec.rank(opened, question, options=options, look_for=look_for).prefix(k)


def check_horizon(budgets: Sequence[int], video: Decoder, config: MECConfig) -> None:
    """Refuse a budget that a ranking of the video will not serve, before the work."""
    if any(size < 1 for size in budgets):
        raise BudgetError(f"a frame budget must be 1 or more, not {min(budgets)}")
    horizon = config.ranking.horizon
    if budgets and max(budgets) > horizon and len(choose_probes(video, config.index)[1]) > horizon:
        raise BudgetError(
            f"a ranking of {horizon} ranks is too short for a budget of {max(budgets)}; "
            f"give horizon={max(budgets)} (--horizon {max(budgets)})"
        )


def with_options(question: str, options: Sequence[str]) -> str:
    """The question and its answers as one text, for relevance.

    >>> with_options("What is it?", ["a cup", "a kiln"])
    'What is it? a cup a kiln'
    """
    return " ".join([question, *options])
