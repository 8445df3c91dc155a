# The public names and where they live. Each is imported when it is first used: see __init__.py.

from . import errors as errors
from . import lmm as lmm
from .config import PRESETS, DiscoveryConfig, IndexConfig, MECConfig, RankingConfig, ScorerConfig
from .errors import (
    BudgetError,
    ConfigError,
    FramenestError,
    IndexMismatch,
    MissingExtra,
    ModelError,
    ScorerError,
    StoreError,
    VideoError,
)
from .extraction import extract
from .frames import FrameBatch, ImageSpec, VideoInfo
from .lmm.ask import ask
from .lmm.client import Client
from .method.index import SparseIndex
from .method.mec import MEC, rank
from .method.prefix import Prefix
from .method.ranking import CandidatePool, Ranking, Stats
from .protocols import Embedder, FrameEmbedder, Scorer, Searchable, Store
from .retrieval.search import Moment, Searcher, search
from .selectors.selection import Selection, Selector
from .session import Session
from .video.decoder import Decoder
from .video.opening import open_video

__version__: str

__all__ = [
    "MEC",
    "PRESETS",
    "BudgetError",
    "CandidatePool",
    "Client",
    "ConfigError",
    "Decoder",
    "DiscoveryConfig",
    "Embedder",
    "FrameBatch",
    "FrameEmbedder",
    "FramenestError",
    "ImageSpec",
    "IndexConfig",
    "IndexMismatch",
    "MECConfig",
    "MissingExtra",
    "ModelError",
    "Moment",
    "Prefix",
    "Ranking",
    "RankingConfig",
    "Scorer",
    "ScorerConfig",
    "ScorerError",
    "Searchable",
    "Searcher",
    "Selection",
    "Selector",
    "Session",
    "SparseIndex",
    "Stats",
    "Store",
    "StoreError",
    "VideoError",
    "VideoInfo",
    "ask",
    "errors",
    "extract",
    "lmm",
    "open_video",
    "rank",
    "search",
]
