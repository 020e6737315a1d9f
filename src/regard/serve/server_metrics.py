"""Metrics in Prometheus' format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from regard.spec import Plain

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
GAUGES = ("waiting", "running", "rows")
TOTALS = ("steps", "sequences", "tokens")


class ServerMetrics:
    """Counts of one server; paths are those of the route table, so that clients cannot make new series."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("regard_requests", "Requests", ["path", "status"], registry=self._registry)
        self._seconds = Histogram(
            "regard_request_seconds", "Time to an answer", ["path"], buckets=BUCKETS, registry=self._registry
        )
        self._gauges = {
            name: Gauge(f"regard_{name}", text, registry=self._registry)
            for name, text in (
                ("requests_in_flight", "Requests that are answered or wait"),
                ("inference_restarts", "Starts of the inference process after the first"),
                ("inference_ready", "Whether models answer"),
            )
        }
        self._model = {
            name: Gauge(f"regard_model_{name}", f"{name} of a model's scheduler", ["model"], registry=self._registry)
            for name in (*GAUGES, *TOTALS)
        }

    def count(self, path: str, status: int, seconds: float) -> None:
        """Note an answer."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def render(self, *, in_flight: int, restarts: int, ready: bool, models: Plain) -> bytes:
        """All metrics as text."""
        for name, value in zip(self._gauges, (in_flight, restarts, int(ready)), strict=True):
            self._gauges[name].set(value)
        for model, stats in models.items():
            for name, gauge in self._model.items():
                gauge.labels(model).set(stats[name])
        return generate_latest(self._registry)
