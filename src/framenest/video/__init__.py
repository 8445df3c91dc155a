"""Exact frames of a video: files, URLs, folders of images, arrays."""
