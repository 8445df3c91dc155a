"""Exact frames of a video: files, addresses, folders of images, arrays."""
