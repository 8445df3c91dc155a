"""The service: videos, questions and rankings over HTTP, and a page of its own. Needs the extra `server`."""
