"""What Prometheus may ask for: requests, jobs, frames decoded, and the process's memory and time."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from framenest.server.jobs import Job

_REQUEST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_JOB = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counters of one server; several servers in one process do not share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "framenest_http_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "framenest_http_seconds",
            "Seconds to answer.",
            ["route"],
            buckets=_REQUEST,
            registry=self.registry,
        )
        self._jobs = Counter("framenest_jobs", "Jobs ended.", ["kind", "state"], registry=self.registry)
        self._job_seconds = Histogram(
            "framenest_job_seconds", "Seconds a job ran.", ["kind"], buckets=_JOB, registry=self.registry
        )
        self.active = Gauge(
            "framenest_jobs_active", "Jobs waiting or running.", ["state"], registry=self.registry
        )
        self.decoded = Counter(
            "framenest_frames_decoded", "Frames decoded for rankings.", registry=self.registry
        )
        self.shared = Counter(
            "framenest_shared", "Requests for work that was done or under way.", registry=self.registry
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def job(self, job: Job) -> None:
        self._jobs.labels(job.kind, job.state).inc()
        if job.started and job.finished:
            self._job_seconds.labels(job.kind).observe(job.finished - job.started)

    def text(self, counts: dict[str, int]) -> bytes:
        """The page that Prometheus reads. counts: jobs now active, by state."""
        for state, count in counts.items():
            self.active.labels(state).set(count)
        return generate_latest(self.registry)
