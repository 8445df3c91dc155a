"""Files of JSON with one value changed, for tests of what is refused."""

import copy


def put(data, place, value):
    """The data with another value at a place such as "pool.seconds[3]"."""
    changed = copy.deepcopy(data)
    *path, last = place.replace("[", ".").replace("]", "").split(".")
    at = changed
    for step in path:
        at = at[int(step)] if isinstance(at, list) else at[step]
    at[int(last) if isinstance(at, list) else last] = value
    return changed
