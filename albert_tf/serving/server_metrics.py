"""The server's counters, for Prometheus."""

import contextlib
import time
from collections.abc import Iterator

import prometheus_client as prometheus

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The counters of a server; they never hold text."""

    def __init__(self) -> None:
        self._registry = registry = prometheus.CollectorRegistry()
        self.requests = prometheus.Counter(
            "albert_requests", "Requests by outcome", ["path", "status"], registry=registry
        )
        self.rows = prometheus.Counter("albert_texts", "Texts or examples", registry=registry)
        self.queue = prometheus.Gauge("albert_queue_length", "Waiting texts", registry=registry)
        self.batch_size = prometheus.Histogram(
            "albert_batch_size",
            "Texts per batch",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=registry,
        )
        self.seconds = prometheus.Histogram(
            "albert_seconds", "Latency by stage", ["stage"], buckets=_SECONDS, registry=registry
        )
        self.version = prometheus.Gauge(
            "albert_model_version", "Newest version that is served", ["model"], registry=registry
        )

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measures the time of its block."""
        start = time.perf_counter()
        yield
        self.seconds.labels(name).observe(time.perf_counter() - start)

    def write(self) -> bytes:
        return prometheus.generate_latest(self._registry)
