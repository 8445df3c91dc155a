"""Tables of scores for tests."""


def zero_elsewhere(scores, count=300):
    """A row for each of `count` frames: 0 where `scores` says nothing, as nothing is interpolated then."""
    return dict.fromkeys(range(count), 0.0) | scores
