"""Framenest: one ranking of a video's frames per question; every frame budget is a prefix of it."""

from framenest import errors, lmm
from framenest.config import PRESETS, DiscoveryConfig, IndexConfig, MECConfig, RankingConfig, ScorerConfig
from framenest.discovery import CandidatePool
from framenest.errors import (
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
from framenest.frames import FrameBatch, ImageSpec, VideoInfo
from framenest.index import SparseIndex
from framenest.mec import MEC
from framenest.prefix import Prefix
from framenest.protocols import Decoder, Embedder, Scorer, Selector, Store
from framenest.result import Ranking
from framenest.selection import Selection
from framenest.video import open_video
from framenest.workspace import Workspace

__version__ = "0.1.0"

__all__ = [
    "MEC",
    "PRESETS",
    "BudgetError",
    "CandidatePool",
    "ConfigError",
    "Decoder",
    "DiscoveryConfig",
    "Embedder",
    "FrameBatch",
    "FramenestError",
    "ImageSpec",
    "IndexConfig",
    "IndexMismatch",
    "MECConfig",
    "MissingExtra",
    "ModelError",
    "Prefix",
    "Ranking",
    "RankingConfig",
    "Scorer",
    "ScorerConfig",
    "ScorerError",
    "Selection",
    "Selector",
    "SparseIndex",
    "Store",
    "StoreError",
    "VideoError",
    "VideoInfo",
    "Workspace",
    "errors",
    "lmm",
    "open_video",
]
