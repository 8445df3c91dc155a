"""The cache of indexes, features and timelines."""
