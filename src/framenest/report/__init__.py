"""Pictures of rankings."""

from framenest.report.sheet import contact_sheet

__all__ = ["contact_sheet"]
