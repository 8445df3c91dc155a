"""Search: the moments of many videos that match a query, in two stages.

First all probes of all videos by vectors that need no question (`protocols.Searchable`), and all passages of
their transcripts. Then MEC with zoom on the best videos.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from framenest.cache.directory import local_directory
from framenest.cache.hashes import known_files
from framenest.config import DEFAULT_PRESET, IndexConfig, MECConfig, ScorerConfig, must_be
from framenest.errors import ConfigError, FramenestError, IndexMismatch, ScorerError, VideoError
from framenest.extraction import write_clip
from framenest.frames import VideoInfo
from framenest.method.index import SparseIndex, index_key
from framenest.method.mec import MEC
from framenest.method.prefix import Prefix
from framenest.method.ranking import HEARD, QUOTABLE, UNCLEAR, Ranking
from framenest.progress import ShowProgress
from framenest.protocols import HasVocabulary, MatchStrength, Scorer, Searchable, Store
from framenest.retrieval.vectors import ScannedVectors, VectorStore, open_vectors
from framenest.scorers.ocr import texts
from framenest.scorers.question_text import SentenceEncoder, asks_for
from framenest.scorers.speech import Passage, Speech
from framenest.session import Session
from framenest.transcript import AUTO, REACH, Line, Transcript
from framenest.video.decoder import Decoder
from framenest.video.opening import Video, reopen
from framenest.video.source import is_remote

UNSURE, STRONG = 0.25, 0.75  # scores below which nothing clearly matches, and from which a match is strong
NEAREST = 3  # moments at most if fewer clearly match
MOMENT_SECONDS = 30.0
SETTINGS = {"horizon": 32, "activation": 0.0625}  # of stage two: the best moments, not their context
MIN_VIDEOS, EVENT_RANKS = 5, 8
"""Videos of stage two, and first ranks of each that may be events, even if fewer moments are wanted."""
ROWS_PER_VIDEO = 64  # of stage one, for each video wanted
MAY_ANSWER = 0.3  # cosine of a query and a passage from which on stage two looks at the passage
SAME_EVENT, DIP_SECONDS = 0.1, 2.5  # difference of scores, and seconds of lower ones, that end no moment

Words = tuple[tuple[str, ...], tuple[str, ...]]  # of a query: those that a scorer knows, and the others


@dataclass(frozen=True)
class Moment:
    """A stretch of a video that matches a query.

    Attributes:
        video: its path or URL.
        start, end, time: in seconds; `time` is that of the best frame.
        frame: the number of the best frame.
        score: how surely it matches, in [0, 1]; comparable across videos, but not across scorers.
        why: what was seen, said or written.
        source: "seen", "said" or "written".
        confident: whether it clearly matches; the others are the nearest that there is.
        info: the video.
        frames: the best frames, best first.
    """

    video: str
    start: float
    end: float
    time: float
    frame: int
    score: float
    why: str
    source: Literal["seen", "said", "written"]
    confident: bool
    info: VideoInfo = field(repr=False)
    frames: tuple[int, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """All but `info` and `frames`."""
        return {name: value for name, value in vars(self).items() if name not in ("info", "frames")}

    def images(
        self, k: int = 1, *, max_side: int | None = None, store: Store | None = None
    ) -> list[Image.Image]:
        """Its best k frames as Pillow images, in time order; arguments and errors as of `Prefix.images`."""
        frames = np.sort(np.array(self.frames[:k], dtype=np.int64))
        prefix = Prefix(self.info, k, frames, np.zeros(len(frames)), None)
        return prefix.images(max_side=max_side, store=store, progress=False)

    def clip(self, path: str | os.PathLike[str], around: float = 3.0, *, store: Store | None = None) -> Path:
        """Write the moment as a short MP4 without sound, cut at exact frames.

        Args:
            path: the file.
            around: seconds to add before and after.
            store: the store of the video's timeline; by default the user's cache.

        Raises:
            VideoError, IndexMismatch: the video no longer exists, or has changed.
            StoreError: the file cannot be written.
        """
        return write_clip(reopen(self.info, store=store), self.start - around, self.end + around, path)


class Moments(list[Moment]):
    """Moments, best first: those that clearly match; if fewer than three do, also the nearest, up to three.

    Attributes:
        query: what was looked for.
        match: how surely any of it was there, and the words of the query that the scorer knows.
        skipped: the videos that could not be searched, and why.
    """

    def __init__(self, query: str, moments: Sequence[Moment], n: int, words: Words | None) -> None:
        ranked = sorted(moments, key=lambda one: (not one.confident, -one.score, one.video, one.start))
        sure = sum(one.confident for one in ranked)
        shown = [one for one in ranked if one.confident or not sure or one.score >= UNSURE]
        super().__init__(shown[: min(n, max(sure, NEAREST))])
        value = max((one.score for one in self), default=0.0)
        match = MatchStrength.of(value, strong=STRONG, none=UNSURE)
        if words is not None:
            known, unknown = words
            doubtful = match.verdict if match.verdict == "none" else "weak"
            verdict = "strong" if sure else doubtful if known else "cannot tell"
            match = MatchStrength(match.value, verdict, known, unknown)
        self.query, self.match = query, match
        self.skipped: Mapping[str, str] = {}

    @property
    def summary(self) -> str:
        """What people should know of the match: that nothing clearly matches, and what the scorer knows.

        Empty if there is nothing to say.
        """
        words = f"the scorer {self.match.words}" if self.match.words else ""
        if any(one.confident for one in self):
            return words
        nearest = "nothing clearly matches" + ("; these moments are the nearest" if self else "")
        return f"{nearest} ({words})" if words else nearest

    def to_json(self) -> dict[str, Any]:
        """The object that `framenest search --json` prints."""
        match, rows = self.match, [one.to_json() for one in self]
        told = {"verdict": match.verdict, **match.vocabulary, "summary": self.summary}
        return {"query": self.query, **told, "moments": rows}


@dataclass(frozen=True)
class IndexedVideo:
    """A video whose vectors are stored."""

    key: str  # of its vectors
    info: VideoInfo
    config: IndexConfig  # of its index
    has_speech: bool | None  # a transcript with vectors; None if neither captions nor sound were there
    video: Video  # what to open

    def at(self, path: str) -> IndexedVideo:
        """The same content at another path."""
        return replace(self, info=replace(self.info, path=path), video=path)


class Searcher:
    """Searches videos with the scorer and the store of a session.

    Args:
        session: its scorer must be `Searchable`.
        library: URI of a library of vectors; by default they are in the session's store.

    Raises:
        ScorerError: the scorer cannot search.

    `skipped` names the videos of the last search that could not be searched, and why.
    """

    def __init__(self, session: Session, *, library: str | None = None) -> None:
        scorer = session.scorer
        if scorer is None or not isinstance(scorer, Searchable):
            raise ScorerError(
                f"scorer {scorer and scorer.name!r} cannot search many videos: it has no vectors that need "
                "no question; choose from blip2, siglip2, onnx, clip, tags"
            )
        self.session = session
        self.config = MECConfig.preset(DEFAULT_PRESET).with_settings(SETTINGS)
        self.skipped: dict[str, str] = {}
        self._scorer = scorer
        self.pictures = open_vectors(session.store, f"{scorer.name} {scorer.version}", library)
        self.passages = open_vectors(session.store, SentenceEncoder.name, library)
        self.screens = open_vectors(session.store, f"{SentenceEncoder.name}, written", library)

    def search(
        self, query: str, videos: Sequence[Video | IndexedVideo] | None = None, n: int = 10
    ) -> Moments:
        """Search videos: the last result of `find`, whose arguments and errors these are."""
        with self.session.showing():
            moments = [Moments(query, [], n, self._words(query)), *self.find(query, videos, n)][-1]
        moments.skipped = self.skipped
        return moments

    def find(
        self, query: str, videos: Sequence[Video | IndexedVideo] | None = None, n: int = 10
    ) -> Iterator[Moments]:
        """Search videos; indexes those that are not indexed yet.

        Args:
            query: what to look for.
            videos: paths, URLs, open videos or those that `split` returned; None searches all in the store.
            n: how many moments.

        Yields:
            The best moments so far, best first, each time stage two finishes a video.

        Raises:
            ConfigError: the query has no words.
            VideoError: there are no videos, or none of them can be searched.
        """
        check_query(query)
        self.skipped = {}
        if videos is None:
            ready = self._present()
        else:
            ready, missing = self.split(videos)
            for video in missing:
                try:
                    decoder = self.session.open(video)
                    index = MEC(self.config, session=self.session).index(decoder)
                    ready.append(self.store_vectors(decoder, index))
                except FramenestError as error:
                    self.skipped[str(video)] = str(error)
        if not ready:
            first = next(iter(self.skipped.values()), "nothing is indexed yet; give videos to index")
            raise VideoError(f"no video can be searched: {first}")
        return self._stream(query, {one.info.fingerprint: one for one in reversed(ready)}.values(), n)

    def _words(self, query: str) -> Words | None:
        return self._scorer.known_words(query) if isinstance(self._scorer, HasVocabulary) else None

    def _catalogue(self) -> dict[str, IndexedVideo]:
        """All videos with vectors: remote ones by URL, the others by fingerprint."""
        catalogue = {}
        for key, about in self.pictures.videos().items():
            info = VideoInfo.from_json(about["video"])
            ready = IndexedVideo(key, info, IndexConfig(**about["config"]), about["said"], info.path)
            catalogue[info.path if is_remote(info.path) else info.fingerprint] = ready
        return catalogue

    def split(self, videos: Sequence[Video | IndexedVideo]) -> tuple[list[IndexedVideo], list[Video]]:
        """The videos whose vectors are stored, found by content, and the others."""
        catalogue = {} if all(isinstance(video, IndexedVideo) for video in videos) else self._catalogue()
        ready, missing = list[IndexedVideo](), list[Video]()
        for done, video in enumerate(videos):
            if isinstance(video, IndexedVideo):
                ready.append(video)
                continue
            self.session.progress("looking", done, len(videos))  # a file that is new here is read whole
            one = self._same(str(video), catalogue) if isinstance(video, (str, os.PathLike)) else None
            if one is None or (self.session.recognizer and one.has_speech is None):
                missing.append(video)
            else:
                ready.append(one)
        return ready, missing

    def _same(self, path: str, catalogue: Mapping[str, IndexedVideo]) -> IndexedVideo | None:
        """The video of the catalogue at a URL, or with the content of a file."""
        if is_remote(path):
            return catalogue.get(path)
        ready = None
        with suppress(VideoError):  # opening it will say why it cannot be read
            if catalogue and Path(path).is_file():
                ready = catalogue.get(local_directory(self.session.store).fingerprint(path))
        return ready and ready.at(path)

    def _present(self) -> list[IndexedVideo]:
        """All videos with vectors that are still there, or elsewhere; the others are skipped."""
        catalogue, files = self._catalogue(), known_files(local_directory(self.session.store))
        there = dict[str, IndexedVideo]()
        for fingerprint, one in sorted(catalogue.items(), key=lambda item: item[1].info.path):
            path = one.info.path
            if Path(path).is_dir() or self._same(path, catalogue) == one:
                there[path] = one
            elif fingerprint in files:
                there[files[fingerprint]] = one.at(files[fingerprint])
            else:
                why = "has changed since it was indexed" if Path(path).exists() else "no longer exists"
                self.skipped[path] = f"{path}: {why}"
        for header in self.pictures.headers(mine=False) if isinstance(self.pictures, ScannedVectors) else ():
            path, space = header["about"]["video"]["path"], header["space"]
            texts = space in (self.passages.space, self.screens.space)
            if not texts and header["about"]["fingerprint"] not in catalogue:
                self.skipped[path] = f"{path}: indexed with {space}; give it to index it with this scorer"
        self.skipped = {path: why for path, why in self.skipped.items() if path not in there}
        return [*there.values()]

    def store_vectors(self, decoder: Decoder, index: SparseIndex) -> IndexedVideo:
        """Store the vectors of an indexed video: of its probes, and of what is said in it."""
        key, info = index_key(decoder, index.config), decoder.info
        transcript, speech = self.session.heard(decoder, *index.span)
        said = True if speech else False if transcript and transcript.source else None
        path = info.path
        if not is_remote(path) and Path(path).exists():  # others search from other folders
            path = str(Path(path).absolute())
        about: dict[str, Any] = {"fingerprint": info.fingerprint, "video": replace(info, path=path).to_json()}
        about |= {"said": said, "config": asdict(index.config)}
        if speech is not None:
            starts = [passage.start for passage in speech.passages]
            frames = (np.searchsorted(decoder.seconds, starts, side="right") - 1).clip(0)
            self.passages.put(key, about, frames, speech.vectors.astype(np.float16))
        if self.session.scoring.ocr == "on" and (text := self._written(decoder, index.frames, index.config)):
            frames = np.searchsorted(decoder.seconds, [passage.start for passage in text.passages])
            self.screens.put(key, about, frames, text.vectors.astype(np.float16))
        features = self.session.features(decoder, self.session.scorer, index.config.thumbnail)
        probes = features.get(index.frames, "probes")
        vectors = np.asarray(self._scorer.search_vectors(probes.encoded), np.float16)
        self.pictures.put(key, about, probes.frames, vectors)
        return IndexedVideo(key, info, index.config, said, decoder)

    def _written(self, decoder: Decoder, frames: NDArray[np.int64], config: IndexConfig) -> Speech | None:
        """What is written on frames, as passages; None without a reader or text."""
        if self.session.reader is None:
            return None
        screens = self.session.features(decoder, self.session.reader, config.thumbnail)
        read = screens.get(frames, "text")
        ends = [*decoder.seconds[read.frames[1:]].tolist(), decoder.info.duration]
        rows = zip(texts(read.encoded), decoder.seconds[read.frames].tolist(), ends, strict=True)
        lines = list[Line]()
        for text, same in groupby(rows, key=itemgetter(0)):
            (_, start, _), *_, (_, _, end) = [*same] * 2
            lines += [Line(start, end, text.replace("\n", " "))] if text else []
        return self.session.speech(Transcript("text on screen", tuple(lines))) if lines else None

    def _stream(self, query: str, ready: Collection[IndexedVideo], n: int) -> Iterator[Moments]:
        by_key, count = {one.key: one for one in ready}, max(n, MIN_VIDEOS)
        best = _best(self.pictures, self._scorer.search_query(query), by_key, count)
        if talks := [one.key for one in ready if one.has_speech]:
            spoken = _best(self.passages, self.session.encoder(query), talks, count, MAY_ANSWER)
            best = _in_turn(best, spoken)
        if self.screens.videos():
            best = _in_turn(best, _best(self.screens, self.session.encoder(query), by_key, count, MAY_ANSWER))
        words, moments = self._words(query), list[Moment]()
        for done, key in enumerate(best, start=1):
            try:
                moments += self._moments(by_key[key], query, n)
            except FramenestError as error:
                self.skipped[by_key[key].info.path] = str(error)
            self.session.progress("videos", done, len(best))
            yield Moments(query, moments, n, words)

    def _moments(self, one: IndexedVideo, query: str, n: int) -> list[Moment]:
        """Stage two: the moments of a video, seen, said or written; what is two of these counts for more."""
        pictures = isinstance(one.video, str) and Path(one.video).is_dir()
        decoder = self.session.open(one.video, one.info.fps if pictures else None)
        if decoder.info.fingerprint != one.info.fingerprint:
            raise IndexMismatch(f"{one.info.path}: has changed since it was indexed")
        ranking = MEC(replace(self.config, index=one.config), session=self.session).rank(decoder, query)
        features = self.session.features(decoder, self.session.scorer, one.config.thumbnail)
        zoomed = features.get(ranking.pool.frames, "zoom")
        scores = features.certainty(zoomed, query)
        clear = scores >= UNSURE
        if isinstance(self._scorer, HasVocabulary):
            clear = self._scorer.clearly_shows(zoomed.encoded, query)
        moments, passages = [*_seen(ranking, scores, clear, query, n)], list[tuple[Any, Passage]]()
        unsure = list[Line]()
        if "speech" in ranking.cues and ranking.transcript is not None:
            said = self.session.speech(ranking.transcript).best(query, n)
            passages += [("said", passage) for passage in said]
            unsure += [one for one in ranking.transcript.lines if not one.surely(QUOTABLE)]
        read = self.session.scoring.ocr == "on" or asks_for("text", query) or self.screens.has(one.key)
        if read and (written := self._written(decoder, ranking.pool.frames, one.config)):
            passages += [("written", passage) for passage in written.best(query, n)]
        for source, (start, end, text, score) in passages:
            if score < HEARD:
                continue
            middle = np.searchsorted(decoder.seconds, (start + end) / 2, side="right")
            frame = max(0, int(middle) - 1)
            best = float(decoder.seconds[frame])
            where = (decoder.info.path, *_around(best, start, end), best, frame)
            doubtful = source == "said" and any(start <= one.start < one.end <= end for one in unsure)
            why = UNCLEAR if doubtful else f"“{text}”"
            new = Moment(*where, score, why, source, score >= UNSURE, decoder.info, (frame,))
            for other in [m for m in moments if start - REACH <= m.time <= end + REACH][:1]:
                moments.remove(other)
                first, second = sorted((other, new), key=lambda m: -m.score)
                both = 1 - (1 - first.score) * (1 - second.score)
                new = replace(first, score=both, why=f"{first.why} · {second.why}", confident=new.confident)
            moments.append(new)
        return moments


def check_query(query: str) -> None:
    """Raise ConfigError if a query has no words."""
    must_be("query", query, str, "a string")
    if not re.search(r"\w", query):
        raise ConfigError(f"the query {query!r} has no words; say what to look for")


def _in_turn(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Keys of both lists, each once, one of either in turn."""
    return [key for key in dict.fromkeys(chain.from_iterable(zip_longest(first, second))) if key is not None]


def _best(
    store: VectorStore, query: NDArray[Any], videos: Collection[str], count: int, least: float = -np.inf
) -> list[str]:
    """Keys of the `count` videos with the best rows, from the score `least` on, best first."""
    rows = ROWS_PER_VIDEO * count
    while True:
        nearest = store.nearest(np.asarray(query, np.float32), rows, videos)
        good = nearest.videos[: int((nearest.scores >= least).sum())]
        order = [*dict.fromkeys(good)][:count]
        if len(order) >= min(count, len(videos)) or len(good) < rows:
            return order
        rows *= 4


def _around(best: float, start: float, end: float) -> tuple[float, float]:
    """Start and end of a stretch, or of MOMENT_SECONDS of it around its best second."""
    start = max(start, min(best - MOMENT_SECONDS / 2, end - MOMENT_SECONDS))
    return start, min(end, start + MOMENT_SECONDS)


def _seen(
    ranking: Ranking, scores: NDArray[np.float32], clear: NDArray[np.bool_], query: str, n: int
) -> Iterator[Moment]:
    """The moments of a ranking: the stretches around its best frame and its first ranks."""
    pool, video, seconds = ranking.pool, ranking.video, ranking.pool.seconds
    middles = (seconds[1:] + seconds[:-1] + 1 / video.fps) / 2  # a frame stays on screen until the next
    edges = [0.0, *np.minimum(middles, seconds[1:]).tolist(), video.duration]  # rounding may exceed a frame
    peaks = [int(scores.argmax()), *ranking.order[: max(n, EVENT_RANKS)].tolist()]
    for first, last in stretches(scores, seconds, peaks):
        best = first + np.argsort(-scores[first : last + 1], kind="stable")
        top = int(best[0])
        score, time = float(scores[top]), float(seconds[top])
        start, end = _around(time, edges[first], edges[last + 1])
        frames = pool.frames[best[(seconds[best] >= start) & (seconds[best] < end)]].tolist()
        why = pool.labels[top] if pool.labels else f"looks like “{query}”"
        where = (video.path, start, end, time, frames[0])
        if score > 0:
            yield Moment(*where, score, why, "seen", bool(clear[top]), video, tuple(frames))


def stretches(
    scores: NDArray[np.float32], seconds: NDArray[np.float64], peaks: Sequence[int]
) -> list[tuple[int, int]]:
    """First and last place of each event that has a peak.

    An event goes on while scores stay above the middle between its peak and the tenth percentile, or within
    SAME_EVENT of the peak. One frame, or all frames of DIP_SECONDS, may be lower.

    >>> scores = np.float32([0, 0, 0.9, 0.2, 0.8, 0, 0, 0, 0, 0.7, 0])
    >>> stretches(scores, np.arange(11.0), [2, 4, 9])
    [(2, 4), (9, 9)]
    """
    base, event, levels = np.percentile(scores, 10), np.full(len(scores), -1), list[float]()
    for peak in map(int, peaks):
        if event[peak] >= 0:
            continue
        level, ends, same = min((scores[peak] + base) / 2, scores[peak] - SAME_EVENT), [peak], len(levels)
        for step in (-1, 1):
            end, place = peak, peak + step
            while 0 <= place < len(scores) and (
                abs(place - end) <= 2 or abs(seconds[place] - seconds[end]) <= DIP_SECONDS
            ):
                if event[place] >= 0:
                    same = int(event[place]) if scores[peak] >= levels[event[place]] else same
                    break
                end = place if scores[place] >= level else end
                place += step
            ends.append(end)
        if same == len(levels):
            levels.append(level)
        members = [*np.flatnonzero(event == same), *ends]
        event[min(members) : max(members) + 1] = same
    places = (np.flatnonzero(event == number) for number in range(len(levels)))
    return [(int(mine[0]), int(mine[-1])) for mine in places]


def search(
    query: str,
    videos: str | os.PathLike[str] | Decoder | Sequence[Video] | None = None,
    n: int = 10,
    *,
    scorer: str | Scorer = "auto",
    store: Store | str | os.PathLike[str] | None = None,
    session: Session | None = None,
    progress: ShowProgress = True,
    library: str | None = None,
) -> Moments:
    """Find the moments of many videos that match a query.

    Args:
        query, videos, n: as for `Searcher.find`, such as "a dog catches a frisbee".
        scorer, store, progress: as for `Session`.
        session: share open videos and the scorer with other calls, instead of those three.
        library: as for `Searcher`.

    Returns:
        Moments, best first; its `skipped` names the videos that could not be searched, and why.

    Example::

        for moment in search("a dog catches a frisbee", ["park.mp4", "beach.mp4"]):
            moment.clip(f"{moment.score:.2f}.mp4")
    """
    scoring = ScorerConfig(subtitles=AUTO)
    session = session or Session(scorer, store=store, progress=progress, scoring=scoring)
    several = [videos] if isinstance(videos, (str, os.PathLike, Decoder)) else videos
    return Searcher(session, library=library).search(query, several, n)
