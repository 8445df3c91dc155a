"""Framenest: one ranking of a video's frames per question; every frame budget is a prefix of it."""

import lazy_loader

# __init__.pyi says which names there are. To import them all takes longer than a short command works.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
