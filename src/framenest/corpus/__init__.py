"""Many videos: what to do, workers that do it, and a report of what could not be done."""
