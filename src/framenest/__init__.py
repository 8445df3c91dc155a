"""Framenest: one ranking of a video's frames per question; every frame budget is a prefix of it."""

from framenest import errors, lmm
from framenest.config import PRESETS, DiscoveryConfig, IndexConfig, MECConfig, RankingConfig, ScorerConfig
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
from framenest.extraction import extract
from framenest.frames import FrameBatch, ImageSpec, VideoInfo
from framenest.lmm.client import Client
from framenest.lmm.ladder import ask
from framenest.method.candidate_pool import CandidatePool
from framenest.method.index import SparseIndex
from framenest.method.mec import MEC, rank
from framenest.method.prefix import Prefix
from framenest.method.ranking import Ranking
from framenest.method.stats import Stats
from framenest.protocols import Decoder, Embedder, FrameEmbedder, Scorer, Store
from framenest.selectors.selection import Selection, Selector
from framenest.session import Session
from framenest.video import open_video

__version__ = "0.1.0"

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
    "Prefix",
    "Ranking",
    "RankingConfig",
    "Scorer",
    "ScorerConfig",
    "ScorerError",
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
]
