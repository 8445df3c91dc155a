"""Where indexes, features and timelines are kept between runs."""
