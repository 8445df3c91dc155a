"""Framenest: one ranking of a video's frames per question; every frame budget is a prefix of it."""

import lazy_loader

# __init__.pyi lists the names. Each is imported on first use, since importing all of them is slow.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
