"""What is said in a video: subtitle files, tracks inside video files, and where to find them."""
