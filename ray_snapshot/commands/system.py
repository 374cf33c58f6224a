"""`ray-snapshot systems | snapshot | diagnose`: systems that are running now, from another terminal.

The cluster is the one at `--address`, else at `RAY_ADDRESS`, else the one on this machine that runs the system of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ray_snapshot.commands.visiting import as_long_as, at_most, visitor
from ray_snapshot.errors import RaySnapshotError, SnapshotAbortedError, SystemNotRunningError
from ray_snapshot.names import check_system_name, noun_of
from ray_snapshot.wrapping import print_text

if TYPE_CHECKING:
    from ray_snapshot.instrument.clusters import Found
    from ray_snapshot.snapshot import Snapshot
    from ray_snapshot.unprepared.looking import Looked
    from ray_snapshot.verdicts import Verdict

_ABOUT_S = 10.0
_CONNECT_S = 60.0
"""Bound for finding clusters, and for connecting to one; a healthy cluster on a busy machine never comes near it."""

_STACKS_S = 30.0

_MUTE = (
    "; a process cannot answer while compiled code holds its interpreter, or while it unpickles an argument or a reply"
)

_MINOR = {
    "run_id": 8,
    "goes_back_to": 7,
    "generation": 6,
    "rolling": 5,
    "hosts": 4,
    "interval_s": 10,
    "cpu_share": 9,
    "every": 3,
    "skipped": 3,
    "pending": 2,
    "snapshots": 1,
}
"""What a terminal does without where it is too narrow, the highest first; see `tables.Column`."""

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
    """List the systems that run here, or on a cluster."""
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
                        print_text(f"ray-snapshot: {error}", is_error=True)
                    else:
                        rows.append({**about, "address": cluster.address})
        for line in found.not_asked():
            print_text(f"ray-snapshot: not asked: {line}", is_error=True)
    where = "this cluster" if len(found.clusters) == 1 else f"these {len(found.clusters)} Ray clusters"
    _print(rows, json, empty=f"No system is running on {where}: start your program with `ray-snapshot run SCRIPT`.")


def snapshot(
    name: Annotated[str, typer.Argument(help="The system.")],
    address: _Address = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which the snapshot is given up.")] = 30.0,
    json: _Json = False,
) -> None:
    """Take a snapshot of a running system now.

    It goes into the system's history, if it keeps one.
    """
    with _service_of(name, address) as service:
        found = _snapshot_by(service, name, timeout)
    row = {
        "snapshot_id": found.snapshot_id,
        "system": found.system,
        "machines": found.machine_count,
        "in_flight": found.in_flight_count,
        "duration_ms": round(found.duration_ms, 3),
        "consistent": found.consistent,
    }
    _print([row], json, machines=f"{noun_of(found.protocol)}s")


def diagnose(
    name: Annotated[str | None, typer.Argument(help="The system; without a name: all that runs.")] = None,
    address: _Address = None,
    job: Annotated[
        str | None, typer.Option(help="Only this job of Ray's, which nothing of ours watches; without a name.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which the snapshot is given up.")] = 30.0,
    stacks: Annotated[
        bool | None,
        typer.Option(help="Where the threads and coroutines of what waits are; with --json only if it is asked for."),
    ] = None,
    with_locals: Annotated[
        bool, typer.Option("--locals", help="Their variables, too, without what is redacted; of a system.")
    ] = False,
    json: _Json = False,
) -> int:
    """Say who waits for whom, now.

    Exit code 0: healthy, 3: deadlock, or suspected, 4: cannot be told.

    Of a system by one snapshot. Without a name: of every system, and of programs that were not started with ray-snapshot by
    two looks from outside; of these it says what is suspected.
    """
    wanted = with_locals or (not json if stacks is None else stacks)
    if name is None:
        return _diagnose_all(address, job, timeout, json, Stacks(wanted, with_locals))
    if job is not None:
        raise typer.BadParameter("--job is for programs that have no name here: leave the name out")
    return _diagnose_system(name, address, timeout, json, Stacks(wanted, with_locals))


class Stacks(NamedTuple):
    """What is asked of the processes concerned."""

    is_wanted: bool
    with_locals: bool


def _diagnose_system(name: str, address: str | None, timeout: float, json: bool, stacks: Stacks) -> int:
    from ray_snapshot.instrument.diagnosis import diagnosis, stack_lines
    from ray_snapshot.unprepared.children import stacks_of_children

    with _service_of(name, address) as service:
        try:
            snapshot = _snapshot_by(service, name, timeout)
        except SnapshotAbortedError as error:
            print_text(f"{name}: cannot be told: {error}{_MUTE if str(error.reason).startswith('timed out') else ''}")
            return 4
        found = diagnosis(snapshot)
        told = _stacks_of(service, snapshot, found.verdicts[0], stacks)
    if stacks.is_wanted:
        for machine, stack in stacks_of_children(snapshot):
            told.setdefault(machine, []).append(stack)
    if json:
        _print([verdict.model_dump(mode="json") for verdict in found.verdicts], as_json=True)
        rows = [
            {"kind": "stack", "machine": machine, **one._asdict(), "frames": [frame._asdict() for frame in one.frames]}
            for machine, those in told.items()
            for one in those
        ]
        _print([*snapshot.coverage.get("happened", ()), *rows], as_json=True)
    else:
        print_text("\n".join([*found.lines, *stack_lines(told, with_locals=stacks.with_locals)]))
    return found.exit_code


def _stacks_of(service: Any, snapshot: Snapshot, verdict: Verdict, stacks: Stacks) -> dict[str, list[Any]]:
    """By machine; none of a system of machines of one's own, whose hosts run actions one after the other."""
    from ray_snapshot.instrument.diagnosis import concerned
    from ray_snapshot.runtime.cluster import ask

    names = concerned(snapshot, verdict) if stacks.is_wanted and hasattr(service, "stacks") else []
    if not names:
        return {}
    found: dict[str, list[Any]] = ask(service.stacks.remote(names, stacks.with_locals), "the stacks", _STACKS_S)
    return found


def _diagnose_all(address: str | None, job: str | None, timeout: float, json: bool, stacks: Stacks) -> int:
    """Every watched system, and every program that is not watched, of all the clusters that are meant."""
    with visitor():
        from ray_snapshot.instrument.clusters import find

        found = _bounded(find, address)
    codes = [] if job is not None else _codes_of_systems(found, timeout, json, stacks)
    with visitor():
        from ray_snapshot.unprepared.looking import exit_code

        looked = _looked_at(found, job)
    looked.sort(key=_urgency)
    rows = [row for one in looked for row in one.rows]
    if json:
        _print(rows, as_json=True)
    else:
        _print_looks(looked)
    for line in found.not_asked():
        print_text(f"ray-snapshot: not asked: {line}", is_error=True)
    if not rows and not codes:
        raise SystemNotRunningError(_no_program(found, job), system="")
    codes.append(exit_code(rows))
    return next((code for code in (3, 4) if code in codes), 0)


def _codes_of_systems(found: Found, timeout: float, json: bool, stacks: Stacks) -> list[int]:
    """Diagnose each watched system; one that cannot be asked is named, and it cannot be told of that one."""
    codes = []
    for cluster in found.clusters:
        for system in cluster.systems:
            try:
                codes.append(_diagnose_system(system, cluster.address, timeout, json, stacks))
            except RaySnapshotError as error:
                print_text(f"ray-snapshot: {error}", is_error=True)
                codes.append(4)
    return codes


def _urgency(looked: Looked) -> tuple[int, int]:
    """Where something is suspected comes first, and then the busy one."""
    is_suspected = any(row["verdict"] == "suspected" for row in looked.rows)
    return -is_suspected, -sum(row["unfinished"] for row in looked.rows)


def _looked_at(found: Found, job: str | None) -> list[Looked]:
    """Each cluster that can be looked at; one that has gone meanwhile joins those that were not asked."""
    from ray_snapshot.instrument.clusters import is_alive
    from ray_snapshot.unprepared.looking import has_ended, look_twice

    looked = []
    for cluster in found.clusters:
        lives, said = partial(is_alive, cluster.address), str(has_ended(cluster.address))
        try:
            with as_long_as(lives, partial(print_text, f"ray-snapshot: error: {said}", is_error=True)):
                looked.append(look_twice(cluster.address, job, cluster.systems, _visit))
        except RaySnapshotError as error:
            if len(found.clusters) == 1:
                raise
            found.silent.setdefault(str(error), []).append(cluster.address)
    return looked


def _print_looks(looked: list[Looked]) -> None:
    several = len(looked) > 1
    for one in looked:
        if several and one.rows:
            print(f"{one.address}:")
        for text in one.texts():
            print_text(text)


def _no_program(found: Found, job: str | None) -> str:
    places = ", ".join(cluster.address for cluster in found.clusters)
    return f"no {f'job {job}' if job else 'program'} runs on the Ray cluster at {places}"


def _snapshot_by(service: Any, name: str, timeout: float) -> Snapshot:
    from ray_snapshot.runtime.cluster import ask
    from ray_snapshot.runtime.faults import in_a_line

    try:
        collected = ask(service.snapshot.remote([], timeout), f"the snapshot of {name}", timeout + 10)
        found: Snapshot = collected.snapshot()
    except RaySnapshotError:
        raise
    except Exception as error:
        raise RaySnapshotError(
            f"the answer of {name} cannot be read here ({in_a_line(error)}): ask with the ray-snapshot that its program has"
        ) from error
    return found


@contextmanager
def _service_of(name: str, address: str | None) -> Iterator[Any]:
    """The service of the system of that name, on whichever cluster of this machine it runs."""
    check_system_name(name)
    with visitor():
        from ray_snapshot.instrument.clusters import find
        from ray_snapshot.runtime.cluster import service_of

        cluster = _bounded(find, address, name).that_runs(name)
        with _visit(cluster.address):
            yield service_of(name)


def _bounded(find: Callable[..., Found], address: str | None, *system: str) -> Found:
    """The clusters that are meant; the process ends if Ray does not come back with them."""
    with at_most(_CONNECT_S, lambda: _complain("the Ray clusters on this machine do not answer")):
        return find(address, *system)


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
    print_text(
        f"ray-snapshot: error: {text} within {_CONNECT_S:g} s; ask again, or see whether Ray still works", is_error=True
    )


def _print(rows: list[dict[str, Any]], as_json: bool, empty: str = "", machines: str = "parties") -> None:
    """`machines`: what that column is called."""
    from ray_snapshot.views.tables import Column, print_json, print_table

    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        heads = {name: name for name in rows[0]} | ({"machines": machines} if "machines" in rows[0] else {})
        print_table(
            rows, [Column(heads[name], name, wraps=name == "failed", minor=_MINOR.get(name, 0)) for name in heads]
        )
    else:
        print_text(empty, is_error=True)
