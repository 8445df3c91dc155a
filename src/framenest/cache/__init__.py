"""The cache that keeps indexes, features and timelines between runs."""
