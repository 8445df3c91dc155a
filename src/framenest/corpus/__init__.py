"""Batches of many videos: manifests, workers, and a report of failures."""
