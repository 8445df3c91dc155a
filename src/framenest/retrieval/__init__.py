"""Search over many videos: in which of them, and when?"""
