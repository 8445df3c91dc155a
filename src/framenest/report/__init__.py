"""Reports, figures and contact sheets of rankings."""

from framenest.report.contact_sheet import contact_sheet

__all__ = ["contact_sheet"]
