"""`ray-snapshot systems | snapshot`: systems that are running now, from another terminal.

Reaches the cluster as Ray does (`--address`, default: the one running on this machine), and the system by its name.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

_Address = Annotated[str | None, typer.Option(help="The cluster's address; default: the one on this machine.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("systems")(systems)
    app.command("snapshot")(snapshot)
    app.command("diagnose")(diagnose)


def systems(address: _Address = None, json: _Json = False) -> None:
    """List the systems that run on a cluster."""
    with _Cluster(address):
        from ray_snapshot.runtime.cluster import ask, running_systems, service_of

        rows = [ask(service_of(name).about.remote(), f"system {name}") for name in running_systems()]
    _print(rows, json, empty="No system is running on this cluster.")


def snapshot(
    name: Annotated[str, typer.Argument(help="The system.")],
    address: _Address = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which the snapshot is given up.")] = 30.0,
    json: _Json = False,
) -> None:
    """Take a snapshot of a running system now; it goes into the system's history, if it keeps one."""
    from ray_snapshot.names import check_system_name

    check_system_name(name)
    with _Cluster(address):
        from ray_snapshot.runtime.cluster import ask, service_of

        collected = ask(service_of(name).snapshot.remote([], timeout), f"the snapshot of {name}", timeout + 10)
        found = collected.snapshot()
    row = {
        "snapshot_id": found.snapshot_id,
        "system": found.system,
        "machines": found.machine_count,
        "in_flight": found.in_flight_count,
        "duration_ms": round(found.duration_ms, 3),
        "consistent": found.consistent,
    }
    _print([row], json)


def diagnose(
    name: Annotated[str, typer.Argument(help="The system.")],
    address: _Address = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which the snapshot is given up.")] = 30.0,
    json: _Json = False,
) -> int:
    """Take one snapshot of a running system and say who waits for whom; exit code 0 healthy, 3 deadlock, 4 could not tell."""
    from ray_snapshot.names import check_system_name

    check_system_name(name)
    with _Cluster(address):
        from ray_snapshot.runtime.cluster import ask, service_of

        collected = ask(service_of(name).snapshot.remote([], timeout), f"the snapshot of {name}", timeout + 10)
        snapshot = collected.snapshot()
    from ray_snapshot import detectors
    from ray_snapshot.instrument.diagnosis import diagnosis

    found = diagnosis(snapshot, [detectors.Deadlock(), detectors.Termination()])
    if json:
        _print([verdict.model_dump(mode="json") for verdict in found.verdicts], as_json=True)
    else:
        print("\n".join(found.lines))
    return found.exit_code


class _Cluster:
    """A connection to a running cluster, for the time of one command."""

    def __init__(self, address: str | None) -> None:
        self.address = address or "auto"

    def __enter__(self) -> None:
        from ray_snapshot.errors import ClusterError
        from ray_snapshot.runtime.cluster import connect

        self._check_only_one()
        try:
            connect(self.address)
        except ClusterError as error:
            if self.address != "auto" or not isinstance(error.__cause__, ConnectionError):
                raise
            raise ClusterError(
                "no Ray cluster runs on this machine: start your program first, and ask while it runs; for a cluster on"
                " another machine say --address HOST:PORT"
            ) from error

    def _check_only_one(self) -> None:
        """Nobody can guess which of several clusters is meant."""
        import os

        from ray_snapshot.errors import ClusterError
        from ray_snapshot.instrument.shape import running_clusters

        if self.address == "auto" and "RAY_ADDRESS" not in os.environ and len(found := running_clusters()) > 1:
            raise ClusterError(
                f"{len(found)} Ray clusters run on this machine: say which with --address: {', '.join(found)}"
            )

    def __exit__(self, *_: Any) -> None:
        import ray

        ray.shutdown()


def _print(rows: list[dict[str, Any]], as_json: bool, empty: str = "") -> None:
    from ray_snapshot.views.tables import Column, print_json, print_table

    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(rows, [Column(name, name, wraps=name == "failed") for name in rows[0]])
    else:
        print(empty, file=sys.stderr)
