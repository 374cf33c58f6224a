"""OpenTelemetry: each snapshot a span, its parties spans below it, each alarm that begins or ends an event.

On where the program's environment names an exporter, as OpenTelemetry itself has it (`OTEL_TRACES_EXPORTER`,
`OTEL_EXPORTER_OTLP_ENDPOINT`), and its SDK is installed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ray_snapshot.limits import LIMITS
from ray_snapshot.news import News

if TYPE_CHECKING:
    from ray_snapshot.snapshot import Snapshot
    from ray_snapshot.verdicts import Detector, Verdict

_WANTED = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SERVICE = "OTEL_SERVICE_NAME"
_TOLD = (
    "system", "run_id", "snapshot_id", "sequence", "protocol", "status", "abort_reason", "machine_count", "in_flight_count",
    "bytes", "consistent", "restorable",
)  # fmt: skip


def settings() -> dict[str, str]:
    """What this process's environment says of OpenTelemetry; nothing if no exporter is named."""
    if not any(os.environ.get(name) for name in _WANTED) or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return {}
    if os.environ.get("OTEL_TRACES_EXPORTER") == "none" or find_spec("opentelemetry") is None:
        return {}
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}


class Spans:
    """Makes the spans of one system."""

    def __init__(self, system: str, told: Mapping[str, str]) -> None:
        """`told`: as `settings` has it. Raises whatever the SDK or an exporter does that cannot be loaded."""
        os.environ.update({SERVICE: f"ray-snapshot {system}", **told})
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self.provider = TracerProvider()
        for name in _exporters(told):
            self.provider.add_span_processor(BatchSpanProcessor(_loaded(name)))
        self.tracer = self.provider.get_tracer("ray_snapshot")
        self.detectors: list[Detector] = []
        self.news = News(lambda name: next((one.alarm_when for one in self.detectors if one.name == name), None))

    def take(self, snapshot: Snapshot, verdicts: Iterable[Verdict], detectors: list[Detector]) -> None:
        """One more snapshot was judged, or given up."""
        self.detectors = detectors
        row = snapshot.tables["snapshots"].to_pylist()[0]
        begin = row["started_at"]
        end = max(begin, row["completed_at"] or begin)
        told = {f"snapshot.{key}": row[key] for key in _TOLD if row[key] is not None}
        span = self.tracer.start_span("snapshot", start_time=_ns(begin), attributes=told)
        for verdict in verdicts:
            if self.news.alarm_when(verdict.detector) is not None and self.news.has(verdict):
                name = "alarm begins" if verdict.alarm else "alarm ends"
                about = {
                    "snapshot.detector": verdict.detector,
                    "snapshot.sentence": verdict.sentence[: LIMITS.span_characters],
                }
                span.add_event(name, about, timestamp=_ns(end))
        if row["status"] != "complete":
            from opentelemetry.trace import Status, StatusCode

            span.set_status(Status(StatusCode.ERROR, str(row["abort_reason"] or "given up")[: LIMITS.span_characters]))
        self._parties(span, snapshot, begin, end)
        span.end(_ns(end))

    def _parties(self, parent: Any, snapshot: Snapshot, begin: datetime, end: datetime) -> None:
        from opentelemetry.trace import set_span_in_context

        context = set_span_in_context(parent)
        here, absent = snapshot.parted
        machines = here.select(["host", "record_delay_ms"])
        rows = machines.group_by("host").aggregate([("record_delay_ms", "max"), ([], "count_all")]).to_pylist()
        parties = {row["host"]: row for row in rows}
        if absent is not None:
            for host, count in absent.hosts.items():
                row = parties.setdefault(host, {"host": host, "record_delay_ms_max": 0.0, "count_all": 0})
                row["count_all"] += count
                row["record_delay_ms_max"] = max(row["record_delay_ms_max"] or 0.0, absent.delays[host])
        rows = [*parties.values()]
        rows.sort(key=lambda row: -(row["record_delay_ms_max"] or 0.0))
        for row in rows[: LIMITS.span_parties]:
            about = {"snapshot.party": str(row["host"]), "snapshot.machine_count": row["count_all"]}
            span = self.tracer.start_span("record", context, start_time=_ns(begin), attributes=about)
            recorded = _ns(begin) + round(max(0.0, row["record_delay_ms_max"] or 0.0) * 1_000_000)
            span.end(min(recorded, _ns(end)))

    def flush(self) -> None:
        """Send what there is, within `last_spans_s`: an exporter may take much longer, for a collector that does not answer."""
        thread = threading.Thread(target=self._flush, name="spans", daemon=True)
        thread.start()
        thread.join(LIMITS.last_spans_s)

    def _flush(self) -> None:
        with suppress(Exception):
            self.provider.force_flush()


def _ns(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000) * 1_000


def _exporters(told: Mapping[str, str]) -> list[str]:
    named = [name.strip() for name in told.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    return [
        _PROTOCOLS.get(_protocol(told), name) if name == "otlp" else name for name in named if name not in ("", "none")
    ]


_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def _protocol(told: Mapping[str, str]) -> str:
    return told.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or told.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "grpc"


def _loaded(name: str) -> Any:
    """The exporter of this name, as its package has registered it."""
    for found in entry_points(group="opentelemetry_traces_exporter", name=name):
        return found.load()()
    raise LookupError(
        f"there is no exporter of traces {name!r}: install opentelemetry-exporter-{name.replace('_', '-')}"
    )
