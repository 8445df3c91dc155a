"""Metrics for Prometheus."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from framenest.server.jobs import Job

_JOB = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counters of one server; several servers in one process do not share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self._requests = counter(
            "framenest_http_requests", "Requests answered.", ["method", "route", "status"]
        )
        self._seconds = histogram("framenest_http_seconds", "Seconds to answer.", ["route"])
        self._jobs = counter("framenest_jobs", "Jobs ended.", ["kind", "state"])
        self._job_seconds = histogram("framenest_job_seconds", "Seconds a job ran.", ["kind"], buckets=_JOB)
        self._active = Gauge(
            "framenest_jobs_active", "Jobs waiting or running.", ["state"], registry=self.registry
        )
        self.shared = counter("framenest_shared", "Requests for work that was done or under way.")

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def job(self, job: Job) -> None:
        """Count a job that ended."""
        self._jobs.labels(job.kind, job.state).inc()
        if job.started and job.finished:
            self._job_seconds.labels(job.kind).observe(job.finished - job.started)

    def text(self, counts: dict[str, int]) -> bytes:
        """The page that Prometheus reads. counts: jobs now active, by state."""
        for state, count in counts.items():
            self._active.labels(state).set(count)
        return generate_latest(self.registry)
