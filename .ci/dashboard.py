"""Write Grafana's dashboard: `ray_snapshot/grafana/dashboard.json`. A test compares the two."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import bargauge, dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableRefresh,
)

PLACE = Path(__file__).parent.parent / "ray_snapshot" / "grafana" / "dashboard.json"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
OF = '{system=~"$system"}'
"""Which series are drawn."""


def query(expr: str, legend: str, *, is_now: bool = False, place: int = 0) -> Any:
    found = prometheus.Dataquery().ref_id("ABC"[place]).expr(expr).legend_format(legend).datasource(SOURCE)
    return found.instant() if is_now else found.range()


def number(title: str, expr: str, legend: str, unit: str, steps: list[tuple[float | None, str]], help_: str) -> Any:
    levels = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE)
    return (
        stat.Panel()
        .title(title)
        .description(help_)
        .datasource(SOURCE)
        .with_target(query(expr, legend, is_now=True))
        .unit(unit)
        .thresholds(levels.steps([Threshold(value=value, color=colour) for value, colour in steps]))
        .height(4)
        .span(6)
    )


def lines(title: str, unit: str, help_: str, *series: tuple[str, str]) -> Any:
    panel = timeseries.Panel().title(title).description(help_).datasource(SOURCE).unit(unit).min(0).height(8).span(12)
    for place, (expr, legend) in enumerate(series):
        panel = panel.with_target(query(expr, legend, place=place))
    return panel


def verdicts() -> Any:
    words = {
        "1": ValueMappingResult(text="holds", color="blue", index=0),
        "0": ValueMappingResult(text="does not hold", color="text", index=1),
        "-1": ValueMappingResult(text="cannot be told", color="yellow", index=2),
    }
    return (
        statetimeline.Panel()
        .title("What the detectors say")
        .description("Of each snapshot: a deadlock that holds is an alarm, a termination that holds is good news.")
        .datasource(SOURCE)
        .with_target(query(f"max by (system, detector) (ray_snapshot_verdict{OF})", "{{system}}: {{detector}}"))
        .mappings([ValueMap(options=words)])
        .height(8)
        .span(24)
    )


def made() -> Any:
    alarms = query(f"max by (system, detector) (ray_snapshot_alarm{OF})", "{{system}}: {{detector}}", is_now=True)
    on = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE)
    alarm = (
        bargauge.Panel()
        .title("Alarms")
        .description("1: the newest snapshot of this system has an alarm of this detector.")
        .datasource(SOURCE)
        .with_target(alarms)
        .min(0)
        .max(1)
        .thresholds(on.steps([Threshold(value=None, color="green"), Threshold(value=1, color="red")]))
        .height(4)
        .span(6)
    )
    age = f"time() - max by (system) (ray_snapshot_last_completed_timestamp_seconds{OF})"
    return (
        dashboard.Dashboard("ray-snapshot")
        .uid("ray-snapshot")
        .description("Consistent global snapshots of Ray systems: what the detectors say, and what snapshots cost.")
        .tags(["ray", "ray-snapshot"])
        .refresh("10s")
        .time("now-30m", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("system")
            .label("System")
            .datasource(SOURCE)
            .query("label_values(ray_snapshot_completed_total, system)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
        .with_panel(alarm)
        .with_panel(
            number("Last snapshot", age, "{{system}}", "s", [(None, "green"), (60, "orange"), (300, "red")], "Its age.")
        )
        .with_panel(
            number(
                "Snapshots given up, 1 h",
                f"max by (system) (increase(ray_snapshot_aborted_total{OF}[1h]))",
                "{{system}}",
                "short",
                [(None, "green"), (1, "orange")],
                "A machine did not record in time; the history says which, and what it was doing.",
            )
        )
        .with_panel(
            number(
                "Rolled back",
                f"max by (system) (ray_snapshot_restores_total{OF})",
                "{{system}}",
                "short",
                [(None, "text")],
                "How often the system went back to a snapshot.",
            )
        )
        .with_panel(verdicts())
        .with_panel(
            lines(
                "How long snapshots take",
                "s",
                "From the beginning until complete, and until the last machine recorded.",
                (f"max by (system) (ray_snapshot_duration_seconds{OF})", "{{system}}: complete"),
                (f"max by (system) (ray_snapshot_record_delay_seconds{OF})", "{{system}}: last machine recorded"),
            )
        )
        .with_panel(
            lines(
                "In flight",
                "short",
                "Messages and calls that were sent and not yet accepted: all of them, and the most to one machine.",
                (f"max by (system) (ray_snapshot_in_flight_messages{OF})", "{{system}}: all"),
                (
                    f"max by (system, class) (ray_snapshot_largest_backlog_messages{OF}) > 0",
                    "{{system}}: to one {{class}}",
                ),
            )
        )
        .with_panel(
            lines(
                "Machines that wait",
                "short",
                "By class. That some wait is no fault; that all do, and nothing is in flight, may be one.",
                (f"max by (system, class) (ray_snapshot_blocked_machines{OF})", "{{system}}: {{class}}"),
            )
        )
        .with_panel(
            lines(
                "Machines",
                "short",
                "By class.",
                (f"max by (system, class) (ray_snapshot_machines{OF})", "{{system}}: {{class}}"),
            )
        )
        .with_panel(
            lines(
                "Snapshots a minute",
                "short",
                "Complete ones, and those that were given up.",
                (f"60 * max by (system) (rate(ray_snapshot_completed_total{OF}[2m]))", "{{system}}: complete"),
                (f"60 * max by (system) (rate(ray_snapshot_aborted_total{OF}[2m]))", "{{system}}: given up"),
            )
        )
        .with_panel(
            lines("Size", "bytes", "Of one snapshot.", (f"max by (system) (ray_snapshot_bytes{OF})", "{{system}}"))
        )
    )


def text() -> str:
    """The dashboard as JSON."""
    found = json.loads(JSONEncoder().encode(made().build()))
    for panel in found["panels"]:
        if panel.get("options") is None:  # Grafana fills in what is not there, and not what is null
            panel.pop("options", None)
    return json.dumps(found, sort_keys=True, indent=2) + "\n"


if __name__ == "__main__":
    PLACE.write_text(text())
    sys.stdout.write(f"{PLACE}\n")
