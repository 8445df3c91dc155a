"""From a prefix to an answer: messages in the style of each model, and a client that asks it.

messages(prefix, question, style=…) makes a Request, for a server (`framenest.lmm.client` sends it) or for a
transformers processor.
"""

from framenest.images import ImageLimits
from framenest.lmm.messages import FOR_SERVERS, STYLES, Style, StyleName, estimate, messages, token_budget
from framenest.lmm.prompt import PAIRINGS, Pairing
from framenest.lmm.request import Request, Tokens

load = Request.load

__all__ = [
    "FOR_SERVERS",
    "PAIRINGS",
    "STYLES",
    "ImageLimits",
    "Pairing",
    "Request",
    "Style",
    "StyleName",
    "Tokens",
    "estimate",
    "load",
    "messages",
    "token_budget",
]
