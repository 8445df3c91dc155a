"""What is said in a video: subtitle files, tracks inside video files, and where to find them."""

AUTO, NONE = "auto", "none"
"""Of the setting `subtitles`: whatever there is, or nothing."""
