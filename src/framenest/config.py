"""All settings of the method. The command line takes its options and their help from these fields."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, Self, get_args

from framenest.errors import BadSetting, ConfigError
from framenest.text import is_url

MAX_FLOAT = sys.float_info.max
Allowed = tuple[str, Callable[[Any], bool]]  # the allowed values of a setting: a description and a check


def setting(
    default: Any, text: str, allowed: Allowed, *, whose: str = "default", for_clients: bool = False
) -> Any:
    """A config field.

    text: one line, the help of its option; whose: where the default comes from, shown in the help, "paper" or
    "default"; for_clients: whether clients of the server may set it.
    """
    metadata = {"help": text, "allowed": allowed, "whose": whose, "for_clients": for_clients}
    return field(default=default, metadata=metadata)


paper = partial(setting, whose="paper")


def finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MAX_FLOAT


def whole(least: int, unit: str = "") -> Allowed:
    words = f"a whole number{unit and f' of {unit}'}, {least} or more"
    return words, lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def one_of(kind: Any) -> Allowed:
    return "one of " + ", ".join(get_args(kind)), lambda value: value in get_args(kind)


def optional(allowed: Allowed) -> Allowed:
    return allowed[0], lambda value: value is None or allowed[1](value)


ANY: Allowed = "anything", lambda _: True  # checked elsewhere
SWITCH: Allowed = "True or False", lambda value: isinstance(value, bool)
POSITIVE: Allowed = "more than 0", lambda value: finite(value) and value > 0
NOT_NEGATIVE: Allowed = "a number, 0 or more", lambda value: finite(value) and value >= 0
SECONDS: Allowed = "seconds, 0 or more", NOT_NEGATIVE[1]
POSITIVE_SECONDS: Allowed = "seconds, more than 0", POSITIVE[1]
UNIT: Allowed = "between 0 and 1", lambda value: finite(value) and 0 <= value <= 1
SHARE: Allowed = "more than 0, at most 1", lambda value: finite(value) and 0 < value <= 1
ODD: Allowed = "an odd whole number, 1 or more", lambda value: whole(1)[1](value) and value % 2 == 1
BELOW_1: Allowed = "0 or more, less than 1", lambda value: finite(value) and 0 <= value < 1
SUBTITLES: Allowed = (
    "auto, none, a file or a folder",
    lambda value: isinstance(value, str) and bool(value.strip()),
)
URL: Allowed = "an http(s) URL", lambda value: isinstance(value, str) and is_url(value)
NAME: Allowed = "a name", lambda value: isinstance(value, str)
DEVICES: Allowed = (
    "a name such as cpu or cuda:0, or several with commas",
    lambda value: isinstance(value, str) and all(part.strip() for part in value.split(",")),
)


def must_be(name: str, value: object, kinds: Any, words: str) -> None:
    """Raise ConfigError if an argument is of another kind; words: what it must be."""
    if not isinstance(value, kinds):
        raise ConfigError(f"{name} must be {words}, not {' '.join(repr(value).split()):.40}")


class CheckedSettings:
    """A config whose settings are checked on construction. Subclasses are frozen dataclasses of settings."""

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            words, ok = one.metadata["allowed"]
            self._require(ok(getattr(self, one.name)), one.name, words)

    def _require(self, ok: bool, name: str, allowed: str) -> None:
        if not ok:
            raise BadSetting(name, getattr(self, name), allowed)

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """A copy with other values for some fields."""
        for name in settings:
            if name not in vars(self):
                raise _unknown_setting(name, list(vars(self)))
        return replace(self, **settings)  # type: ignore[type-var]  # as above


Probing = Literal["uniform", "keyframes"]
RelevanceText = Literal["question", "question+options"]
Precision = Literal["auto", "float32", "float16", "bfloat16"]
Calibration = Literal["auto", "none", "logistic"]
Rule = Literal["paper", "residual"]
Reading = Literal["auto", "on", "none"]


@dataclass(frozen=True)
class IndexConfig(CheckedSettings):
    """Settings of a video's index, which serves every question. Only these enter its cache key."""

    base_probes: int = paper(256, "P0: number of probes in a very short video.", whole(1))
    extra_probes: int = paper(256, "P1: probes added as the video gets longer.", whole(0))
    saturation: float = paper(
        1800.0, "τp: seconds of video at which all extra probes are used.", POSITIVE_SECONDS
    )
    max_gap: float | None = setting(
        None,
        "Longest gap between probes, in seconds; adds probes.",
        optional(POSITIVE_SECONDS),
        for_clients=True,
    )
    probing: Probing = paper(
        "uniform", "Where probes are: on an exact grid, or on key frames (much faster).", one_of(Probing)
    )
    thumbnail: int = paper(32, "d: short side of the thumbnails, in pixels.", whole(1, "pixels"))
    blur_kernel: int = paper(9, "Lb: length of the reblurring kernel of the sharpness measure.", ODD)
    exposure_mean: float = paper(0.5, "μ: the best exposed intensity.", UNIT)
    exposure_sigma: float = paper(0.2, "σ: how far from it still counts as well exposed.", POSITIVE)
    start: float = paper(0.0, "Start of the part to rank: seconds or [HH:]MM:SS.", SECONDS, for_clients=True)
    end: float | None = paper(None, "End of the part to rank.", ANY, for_clients=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        late = self.end is None or (finite(self.end) and self.end > self.start)
        self._require(late, "end", f"seconds, more than start ({self.start:g})")


@dataclass(frozen=True)
class DiscoveryConfig(CheckedSettings):
    """How probes are scored, and where the search zooms in. Evidence is a weighted sum of cues."""

    relevance_weight: float = paper(0.7, "λr: weight of the scorer's relevance.", NOT_NEGATIVE)
    change_weight: float = paper(0.2, "λΔ: weight of local visual change.", NOT_NEGATIVE)
    observability_weight: float = paper(0.1, "λo: weight of sharpness times exposure.", NOT_NEGATIVE)
    segment_length: int = paper(4, "L: probes in a segment.", whole(1))
    activation: float = paper(0.25, "η: share of segments that are searched more finely.", SHARE)
    anchors: int = paper(1, "Anchors in each active segment (the paper has 1).", whole(1))
    zoom: int = paper(2, "Lz: new frames on each side of an anchor.", whole(0))
    relevance_text: RelevanceText = setting(
        "question", "The text that frames are scored against.", one_of(RelevanceText)
    )
    speech_weight: float = setting(0.6, "λs: weight of the transcript, with --subtitles.", NOT_NEGATIVE)
    written: bool = setting(
        False, "Read text on screen if the question asks for something written; it then decides.", SWITCH
    )


@dataclass(frozen=True)
class RankingConfig(CheckedSettings):
    """How candidates are ordered.

    The rule `paper` weighs evidence, coverage and diversity at each rank. `residual` takes the frame with the
    most evidence that no chosen frame shows yet; it uses only `horizon` and the settings after `rule`.
    """

    horizon: int = paper(
        256, "M: length of the ranking, and of the shift from evidence to context.", whole(1)
    )
    evidence_weight_start: float = paper(0.6, "we+: weight of evidence at the first ranks.", UNIT)
    evidence_weight_end: float = paper(0.2, "we−: weight of evidence at the last rank.", UNIT)
    gamma: float = paper(1.0, "γ: above 1 the shift comes later, below 1 earlier.", POSITIVE)
    diversity_weight: float = paper(0.2, "wd: weight of visual diversity, the same at every rank.", UNIT)
    coverage_term: bool = paper(
        True, "Reward frames far from those already chosen (off: an ablation).", SWITCH
    )
    rule: Rule = setting(
        "paper", "paper: a weighted sum; residual: evidence that no chosen frame shows yet.", one_of(Rule)
    )
    evidence_floor: float = setting(0.05, "c: added to all evidence by `residual`.", POSITIVE)
    event_shortest: float = setting(3.0, "a: the shortest event, in seconds.", POSITIVE)
    event_longest: float = setting(60.0, "b: the longest event, in seconds.", POSITIVE)
    scene_shortest: float = setting(
        40.0, "a, if relevance does not dip between two frames, in seconds.", POSITIVE
    )
    scene_longest: float = setting(
        240.0, "b, if relevance does not dip between two frames, in seconds.", POSITIVE
    )
    same_look_from: float = setting(
        0.995, "s₀: visual similarity from which two frames may show the same thing.", BELOW_1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # The schedule is monotone in k, so its two ends bound every rank.
        most = 1 - self.diversity_weight
        for name in ("evidence_weight_start", "evidence_weight_end"):
            fits = getattr(self, name) <= most + 1e-12
            self._require(fits, name, f"between 0 and {most:g} (1 - diversity_weight)")
        for longest, shortest in (("event_longest", "event_shortest"), ("scene_longest", "scene_shortest")):
            least = getattr(self, shortest)
            self._require(getattr(self, longest) > least, longest, f"more than {shortest} ({least:g})")


@dataclass(frozen=True)
class ScorerConfig(CheckedSettings):
    """How the scorer runs; reranking, OCR, transcript. Outputs record the settings that change scores."""

    device: str = setting(
        "auto", "cpu, cuda, or several: cuda:0,cuda:1. auto takes a GPU if there is one.", DEVICES
    )
    batch: int | None = setting(None, "Frames encoded at a time; fewer need less memory.", optional(whole(1)))
    precision: Precision = setting(
        "auto", "Number format of the model: auto is float16 on a GPU, float32 elsewhere.", one_of(Precision)
    )
    calibration: Calibration = setting(
        "auto",
        "How scores become relevance: auto is none for matching probabilities, otherwise logistic.",
        one_of(Calibration),
    )
    revision: str | None = setting(
        None, "Commit, branch or tag of the scorer's weights on the hub; pinned by default.", ANY
    )
    rerank: int = setting(0, "Score this many of the best candidates again, with the reranker.", whole(0))
    reranker: str = setting("qwen3-vl-reranker", "The scorer of that second pass.", ANY)
    ocr: Reading = setting(
        "auto",
        "Read text on screen if the question asks for it; the preset `paper` never does. auto: if the extra "
        "`tags` is installed. on: also while videos are indexed.",
        one_of(Reading),
    )
    subtitles: str | None = setting(
        None,
        "The transcript, as evidence: a FILE (SRT, WebVTT, ASS, whisper's JSON), a folder of files with the "
        "videos' names, auto (such a file beside the video, or a track inside it) or none. "
        "[default: auto; none in evaluations and in Python]",
        optional(SUBTITLES),
    )
    listen: bool = setting(
        False, "Without a transcript, make one of the sound (extra `asr`: Whisper).", SWITCH
    )
    listen_url: str | None = setting(
        None,
        "Have this OpenAI-compatible server do it; it gets the sound and $OPENAI_API_KEY.",
        optional(URL),
    )
    listen_model: str | None = setting(
        None,
        "A size of Whisper (tiny, base, small, medium, large-v3), a folder, org/name, or a plug-in; or the "
        "server's model. [default: small; the server's, if it has just one]",
        optional(NAME),
    )
    listen_translate: bool = setting(False, "Translate what is said into English.", SWITCH)


@dataclass(frozen=True)
class VideoConfig(CheckedSettings):
    """How a video is opened."""

    fps: float | None = setting(None, "Frame rate of a folder of numbered images; 1 unless given.", ANY)
    stream: int | None = setting(None, "Index of the video stream. [default: FFmpeg's choice]", ANY)
    decoder: str = setting("pyav", "pyav, or a plug-in.", ANY)


@dataclass(frozen=True)
class MECConfig:
    """The whole method: MECConfig() is the paper's shared configuration.

    >>> MECConfig(ranking=RankingConfig(horizon=64)).ranking.horizon
    64
    """

    index: IndexConfig = IndexConfig()
    discovery: DiscoveryConfig = DiscoveryConfig()
    ranking: RankingConfig = RankingConfig()

    @classmethod
    def preset(cls, name: str) -> MECConfig:
        """The paper's configuration, or one of its ablations, by name (see PRESETS)."""
        if name not in PRESETS:
            raise ConfigError(f"there is no preset {name!r}; choose from {', '.join(PRESETS)}")
        return cls().with_settings(PRESETS[name])

    def with_settings(self, settings: Mapping[str, Any], also: Iterable[str] = ()) -> MECConfig:
        """A copy with other values for some fields of its three parts.

        also: other names that the caller accepts; the error for an unknown setting lists them too.

        >>> MECConfig().with_settings({"zoom": 4, "horizon": 64}).discovery.zoom
        4
        """
        known = self.settings()
        for name in settings:
            if name not in known:
                raise _unknown_setting(name, [*known, *also])
        parts = {
            part: config.with_settings({name: settings[name] for name in settings if name in vars(config)})
            for part, config in vars(self).items()
        }
        return MECConfig(**parts)

    def settings(self) -> dict[str, Any]:
        """Every setting of its parts, by name."""
        return {name: value for part in asdict(self).values() for name, value in part.items()}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


METHOD_CONFIGS = (IndexConfig, DiscoveryConfig, RankingConfig)
FOR_CLIENTS = {
    one.name: one for config in METHOD_CONFIGS for one in fields(config) if one.metadata["for_clients"]
}
"""The settings that clients of the server may set."""


def _unknown_setting(name: str, known: Sequence[str]) -> ConfigError:
    """The error for an unknown setting, with the closest known name."""
    near = difflib.get_close_matches(name, known, n=1)
    choose = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
    return ConfigError(f"there is no setting {name!r}; {choose}")


def _weights(start: float, end: float, diversity: float = 0.2) -> dict[str, Any]:
    return {"evidence_weight_start": start, "evidence_weight_end": end, "diversity_weight": diversity}


DEFAULT_PRESET = "residual"
"""The preset of commands, the page and `fn.rank`; code that reproduces the paper uses "paper"."""
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"rule": "paper"},
    "residual": {"rule": "residual", "written": True},
    "static-weights": _weights(0.6, 0.6),
    "evidence-only": _weights(1.0, 1.0, diversity=0.0),
    "no-coverage": {"coverage_term": False},
    "no-diversity": {"diversity_weight": 0.0},
    "no-zoom": {"zoom": 0},
    "no-change": {"change_weight": 0.0},
    "no-observability": {"observability_weight": 0.0},
    "static-coverage-heavy": _weights(0.2, 0.2),
    "static-balanced": _weights(0.4, 0.4),
    "back-loaded": {"gamma": 1.5},
    "front-loaded": {"gamma": 2 / 3},
    "reverse": _weights(0.2, 0.6),
    "high-to-mid": _weights(0.7, 0.3),
    "mid-to-low": _weights(0.5, 0.1),
}
"""The paper's configuration, the rule beyond it, and the paper's ablations: what each changes."""
PAPER_PRESETS = [name for name in PRESETS if MECConfig.preset(name).ranking.rule == MECConfig().ranking.rule]
"""Those of the paper's own tables: they keep its rule."""
