"""The paper's settings, written once. Every command-line option is generated from these fields."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from framenest.errors import ConfigError

Probing = Literal["uniform", "keyframes"]
RelevanceText = Literal["question", "question+options"]
Precision = Literal["auto", "float32", "float16", "bfloat16"]
Calibration = Literal["auto", "none", "logistic"]


def setting(default: Any, help: str, whose: str = "paper") -> Any:  # noqa: A002 - the command line's word
    """A config field with its one-line explanation, which becomes the option's help."""
    return field(default=default, metadata={"help": help, "whose": whose})


def _require(ok: bool, config: object, name: str, allowed: str) -> None:
    if not ok:
        value = getattr(config, name)
        raise ConfigError(f"{type(config).__name__}.{name} = {value!r} is not allowed; it must be {allowed}")


def _finite(value: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True)
class IndexConfig:
    """What the reusable index of a video depends on. Only these enter its cache key."""

    base_probes: int = setting(256, "P0: probes of a very short video.")
    extra_probes: int = setting(256, "P1: probes added as the video gets longer.")
    saturation: float = setting(1800.0, "τp: seconds of video at which all extra probes are used.")
    probing: Probing = setting("uniform", "Where probes lie: an exact grid, or on key frames (much faster).")
    thumbnail: int = setting(32, "d: short side of the thumbnails, in pixels.")
    blur_kernel: int = setting(9, "Lb: length of the reblurring kernel of the sharpness measure.")
    exposure_mean: float = setting(0.5, "μ: the best exposed intensity.")
    exposure_sigma: float = setting(0.2, "σ: how far from it still counts as well exposed.")
    start: float = setting(0.0, "Seconds: look only at the video from here.")
    end: float | None = setting(None, "Seconds: look only at the video up to here.")

    def __post_init__(self) -> None:
        _require(_whole(self.base_probes, 1), self, "base_probes", "a whole number, 1 or more")
        _require(_whole(self.extra_probes, 0), self, "extra_probes", "a whole number, 0 or more")
        _require(_finite(self.saturation) and self.saturation > 0, self, "saturation", "seconds, more than 0")
        _require(self.probing in get_args(Probing), self, "probing", "one of " + ", ".join(get_args(Probing)))
        _require(_whole(self.thumbnail, 1), self, "thumbnail", "a whole number of pixels, 1 or more")
        odd = _whole(self.blur_kernel, 1) and self.blur_kernel % 2 == 1
        _require(odd, self, "blur_kernel", "an odd whole number, 1 or more")
        in_unit = _finite(self.exposure_mean) and 0 <= self.exposure_mean <= 1
        _require(in_unit, self, "exposure_mean", "between 0 and 1")
        positive = _finite(self.exposure_sigma) and self.exposure_sigma > 0
        _require(positive, self, "exposure_sigma", "more than 0")
        _require(_finite(self.start) and self.start >= 0, self, "start", "seconds, 0 or more")
        late = self.end is None or (_finite(self.end) and self.end > self.start)
        _require(late, self, "end", f"seconds, more than start ({self.start:g})")


@dataclass(frozen=True)
class DiscoveryConfig:
    """How evidence is scored on the probes, and where the search zooms in."""

    relevance_weight: float = setting(0.7, "λr: weight of the scorer's relevance.")
    change_weight: float = setting(0.2, "λΔ: weight of local visual change.")
    observability_weight: float = setting(0.1, "λo: weight of sharpness times exposure.")
    segment_length: int = setting(4, "L: probes in a segment.")
    activation: float = setting(0.25, "η: share of the segments that are searched more finely.")
    anchors: int = setting(1, "Anchors in each active segment (the paper has 1).")
    zoom: int = setting(2, "Lz: new frames on each side of an anchor.")
    relevance_text: RelevanceText = setting("question", "What frames are scored against.", "default")
    text_weight: float = setting(0.25, "λt: weight of text read on screen, with --ocr.", "default")

    def __post_init__(self) -> None:
        for name in ("relevance_weight", "change_weight", "observability_weight", "text_weight"):
            value = getattr(self, name)
            _require(_finite(value) and value >= 0, self, name, "a number, 0 or more")
        _require(_whole(self.segment_length, 1), self, "segment_length", "a whole number, 1 or more")
        _require(
            _finite(self.activation) and 0 < self.activation <= 1,
            self,
            "activation",
            "more than 0, at most 1",
        )
        _require(_whole(self.anchors, 1), self, "anchors", "a whole number, 1 or more")
        _require(_whole(self.zoom, 0), self, "zoom", "a whole number, 0 or more")
        texts = get_args(RelevanceText)
        _require(self.relevance_text in texts, self, "relevance_text", "one of " + ", ".join(texts))


@dataclass(frozen=True)
class RankingConfig:
    """How evidence, coverage and diversity are traded at each rank."""

    horizon: int = setting(256, "M: length of the ranking, and of the shift from evidence to context.")
    evidence_start: float = setting(0.6, "we+: weight of evidence at the first ranks.")
    evidence_end: float = setting(0.2, "we−: weight of evidence at the last rank.")
    gamma: float = setting(1.0, "γ: above 1 the shift comes later, below 1 earlier.")
    diversity: float = setting(0.2, "wd: weight of visual diversity, the same at every rank.")
    coverage: bool = setting(True, "Reward frames far from those already chosen (off: an ablation).")

    def __post_init__(self) -> None:
        _require(_whole(self.horizon, 1), self, "horizon", "a whole number, 1 or more")
        _require(_finite(self.gamma) and self.gamma > 0, self, "gamma", "more than 0")
        _require(_finite(self.diversity) and 0 <= self.diversity <= 1, self, "diversity", "between 0 and 1")
        # The schedule is monotone in k, so its two ends bound every rank.
        for name in ("evidence_start", "evidence_end"):
            value = getattr(self, name)
            most = 1 - self.diversity
            ok = _finite(value) and 0 <= value <= most + 1e-12
            _require(ok, self, name, f"between 0 and 1 - diversity = {most:g}")


@dataclass(frozen=True)
class ScorerConfig:
    """How the scorer runs, and what is added to it. What changes its numbers is said in every output."""

    device: str = setting(
        "auto", "cpu, cuda, or several: cuda:0,cuda:1. auto is a GPU where there is one.", "default"
    )
    batch: int | None = setting(None, "Frames at a time; fewer need less memory.", "default")
    precision: Precision = setting(
        "auto", "Of the model: auto is float16 on a GPU, float32 elsewhere.", "default"
    )
    calibration: Calibration = setting(
        "auto",
        "How scores become relevance: auto is none for matching probabilities, logistic elsewhere.",
        "default",
    )
    rerank: int = setting(0, "Score this many of the best candidates again with the reranker.", "default")
    reranker: str = setting("qwen3-vl-reranker", "The scorer of that second pass.", "default")
    ocr: float = setting(0.0, "Seconds to spend on reading text on screen; 0 reads none.", "default")

    def __post_init__(self) -> None:
        named = isinstance(self.device, str) and all(part.strip() for part in self.device.split(","))
        _require(named, self, "device", "a name such as cpu or cuda:0, or several with commas")
        _require(self.batch is None or _whole(self.batch, 1), self, "batch", "a whole number, 1 or more")
        for name, kind in (("precision", Precision), ("calibration", Calibration)):
            _require(getattr(self, name) in get_args(kind), self, name, "one of " + ", ".join(get_args(kind)))
        _require(_whole(self.rerank, 0), self, "rerank", "a whole number, 0 or more")
        _require(_finite(self.ocr) and self.ocr >= 0, self, "ocr", "seconds, 0 or more")


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

    def with_settings(self, settings: dict[str, Any]) -> MECConfig:
        """A copy with some fields, named across all three parts, set to other values.

        >>> MECConfig().with_settings({"zoom": 4, "horizon": 64}).discovery.zoom
        4
        """
        parts: dict[str, Any] = {}
        left = dict(settings)
        for part in fields(self):
            config = getattr(self, part.name)
            mine = {f.name: left.pop(f.name) for f in fields(config) if f.name in left}
            parts[part.name] = replace(config, **mine)
        if left:
            raise ConfigError(f"unknown setting {next(iter(left))!r}")
        return MECConfig(**parts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, dict[str, Any]]) -> MECConfig:
        return cls(
            IndexConfig(**data["index"]),
            DiscoveryConfig(**data["discovery"]),
            RankingConfig(**data["ranking"]),
        )


def _weights(start: float, end: float, diversity: float = 0.2, **other: Any) -> dict[str, Any]:
    return {"evidence_start": start, "evidence_end": end, "diversity": diversity, **other}


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "static-weights": _weights(0.6, 0.6),
    "evidence-only": _weights(1.0, 1.0, diversity=0.0),
    "no-coverage": {"coverage": False},
    "no-diversity": {"diversity": 0.0},
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
"""The paper's configuration and its ablations: what each changes."""
