"""`ray-snapshot systems | snapshot | diagnose`: systems that are running now, from another terminal.

The cluster is the one at `--address`, else at `RAY_ADDRESS`, else the one on this machine that runs the system of that name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.commands.visiting import at_most, visitor
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.names import check_system_name

if TYPE_CHECKING:
    from ray_snapshot.instrument.clusters import Found
    from ray_snapshot.snapshot import Snapshot

_ABOUT_S = 10.0
_CONNECT_S = 60.0
"""Bound for finding clusters, and for connecting to one; a healthy cluster on a busy machine never comes near it."""

_Address = Annotated[
    str | None, typer.Option(help="The cluster's address, HOST:PORT; default: RAY_ADDRESS, or those on this machine.")
]
_Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("systems")(systems)
    app.command("snapshot")(snapshot)
    app.command("diagnose")(diagnose)


def systems(address: _Address = None, json: _Json = False) -> None:
    """List the systems that run on a cluster, or on all clusters of this machine."""
    rows: list[dict[str, Any]] = []
    with visitor():
        from ray_snapshot.instrument.clusters import find
        from ray_snapshot.runtime.cluster import ask, service_of

        found = _bounded(find, address)
        for cluster in (item for item in found.clusters if item.systems):
            with _visit(cluster.address):
                for name in cluster.systems:
                    try:
                        about = ask(service_of(name).about.remote(), f"system {name}", _ABOUT_S)
                    except RaySnapshotError as error:  # it ends at this moment, or its service does not answer
                        print(f"ray-snapshot: {error}", file=sys.stderr)
                    else:
                        rows.append({**about, "address": cluster.address})
        for line in found.not_asked():
            print(f"ray-snapshot: not asked: {line}", file=sys.stderr)
    where = "this cluster" if len(found.clusters) == 1 else f"these {len(found.clusters)} Ray clusters"
    _print(rows, json, empty=f"No system is running on {where}: start your program with `ray-snapshot run SCRIPT`.")


def snapshot(
    name: Annotated[str, typer.Argument(help="The system.")],
    address: _Address = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which the snapshot is given up.")] = 30.0,
    json: _Json = False,
) -> None:
    """Take a snapshot of a running system now; it goes into the system's history, if it keeps one."""
    found = _snapshot_of(name, address, timeout)
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
    snapshot = _snapshot_of(name, address, timeout)
    from ray_snapshot import detectors
    from ray_snapshot.detectors.pending import why_pending
    from ray_snapshot.detectors.stores import short_of_room
    from ray_snapshot.instrument.diagnosis import diagnosis

    asked = detectors.Deadlock(), detectors.Termination()
    found = diagnosis(snapshot, asked, why_pending(snapshot), short_of_room(snapshot))
    if json:
        _print([verdict.model_dump(mode="json") for verdict in found.verdicts], as_json=True)
    else:
        print("\n".join(found.lines))
    return found.exit_code


def _snapshot_of(name: str, address: str | None, timeout: float) -> Snapshot:
    """A snapshot taken now of the system of that name, on whichever cluster of this machine it runs."""
    check_system_name(name)
    with visitor():
        from ray_snapshot.instrument.clusters import find
        from ray_snapshot.runtime.cluster import ask, service_of

        cluster = _bounded(find, address).that_runs(name)
        with _visit(cluster.address):
            collected = ask(service_of(name).snapshot.remote([], timeout), f"the snapshot of {name}", timeout + 10)
            found: Snapshot = collected.snapshot()
            return found


def _bounded(find: Callable[[str | None], Found], address: str | None) -> Found:
    """The clusters that are meant; the process ends if Ray does not come back with them."""
    with at_most(_CONNECT_S, lambda: _complain("the Ray clusters on this machine do not answer")):
        return find(address)


@contextmanager
def _visit(address: str) -> Iterator[None]:
    """A connection to a running cluster, for the time of one question."""
    import ray

    from ray_snapshot.instrument.clusters import authorized
    from ray_snapshot.runtime.cluster import connect

    with authorized(address):
        with at_most(_CONNECT_S, lambda: _complain(f"the Ray cluster at {address} does not answer")):
            connect(address, is_visit=True)
        try:
            yield
        finally:
            ray.shutdown()


def _complain(text: str) -> None:
    print(
        f"ray-snapshot: error: {text} within {_CONNECT_S:g} s; ask again, or see whether Ray still works",
        file=sys.stderr,
    )


def _print(rows: list[dict[str, Any]], as_json: bool, empty: str = "") -> None:
    from ray_snapshot.views.tables import Column, print_json, print_table

    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(rows, [Column(name, name, wraps=name == "failed") for name in rows[0]])
    else:
        print(empty, file=sys.stderr)
