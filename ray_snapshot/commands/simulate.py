"""`ray-snapshot simulate`: token-passing machines and Chandy-Lamport snapshots, without Ray.

The simulator (`ray_snapshot.simulation`) is imported once the command is really run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.errors import SettingError
from ray_snapshot.protocol.choosing import AT_LEAST_ONCE, CHANDY_LAMPORT, OBSERVER, PROTOCOLS

if TYPE_CHECKING:
    from ray_snapshot.simulation.tokens.playing import Exhausted, Play
    from ray_snapshot.simulation.tokens.system import Result

_MOST_COLUMNS = 12
"""Topologies with more machines are listed without their balances."""


def register(app: typer.Typer) -> None:
    """Add the command `simulate` to the command line."""
    app.command("simulate")(simulate)


def simulate(
    topology: Annotated[str, typer.Option(help="Machines, tokens and channels.")],
    events: Annotated[str | None, typer.Option(help="Lines 'send S T K', 'snapshot NAME', 'tick [N]'.")] = None,
    schedule: Annotated[
        str | None, typer.Option(help="JSON lines with op send, snapshot or deliver: nothing is left to chance.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Chooses the delays of an events file; default 0.")] = None,
    protocol: Annotated[str, typer.Option(help=f"One of: {', '.join(PROTOCOLS)}.")] = PROTOCOLS[0],
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Every order of deliveries; for small events files.")
    ] = False,
    most_states: Annotated[
        int | None, typer.Option(min=1, help="How many states --exhaustive tries at most; default 20,000.")
    ] = None,
    diagram: Annotated[str | None, typer.Option(help="Draw the run as a space-time diagram (SVG) there.")] = None,
    snapshot: Annotated[
        int | None,
        typer.Option(min=0, help="Draw the cut of this snapshot alone, and the equivalent computation, too."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a snapshot and line.")] = False,
) -> None:
    """Run token-passing machines, and take snapshots of them."""
    from ray_snapshot.simulation.tokens import playing, scripts
    from ray_snapshot.views.tables import status

    _check(events, schedule, seed, protocol, exhaustive)
    if most_states is not None and not exhaustive:
        raise SettingError("--most-states bounds the search of every order: it goes with --exhaustive")
    _check_drawing(diagram, snapshot, exhaustive)
    system = scripts.read_topology(topology)
    by_channels = protocol != OBSERVER
    if exhaustive:
        script = scripts.read_events(str(events), system, by_channels=by_channels)
        most = playing.MOST_STATES if most_states is None else most_states
        with status(f"every order: 0 states, {most:,} at most") as show:

            def tell(states: int) -> None:
                if show is not None and not states % 100:
                    show(f"every order: {states:,} states, {most:,} at most")

            found = playing.play_every_order(system, script, protocol, most=most, tell=tell)
        _print_every_order(found, as_json, protocol)
        return
    if schedule is not None:
        script = scripts.read_schedule(schedule, system, by_channels=by_channels)
        play = playing.play_schedule(system, script, protocol)
        title = f"schedule {schedule}"
    else:
        script = scripts.read_events(str(events), system, by_channels=by_channels)
        play = playing.play_events(system, script, seed or 0, protocol)
        title = f"events {events}, seed {seed or 0}"
    results = play.system.results()
    if diagram is not None:
        _draw(play, results, title, diagram, snapshot)
    told = [title, *listing(play), *snapshots(results)]
    lines = [as_json_line(result, protocol) for result in results] if as_json else told
    for line in lines:
        print(line)
    _exit_if_wrong(results, protocol)


def _check(events: str | None, schedule: str | None, seed: int | None, protocol: str, exhaustive: bool) -> None:
    if (events is None) == (schedule is None):
        raise SettingError("give either --events or --schedule: a run needs exactly one of them")
    if protocol not in PROTOCOLS:
        raise SettingError(f"simulate has no protocol {protocol!r}; it has {', '.join(PROTOCOLS)}")
    if events is None and (seed is not None or exhaustive):
        raise SettingError("a schedule leaves nothing to chance: --seed and --exhaustive go with --events")
    if exhaustive and seed is not None:
        raise SettingError("--exhaustive tries every order: it takes no --seed")


def _check_drawing(diagram: str | None, snapshot: int | None, exhaustive: bool) -> None:
    if exhaustive and diagram:
        raise SettingError("--exhaustive is many runs: --diagram draws one; give --seed or --schedule instead")
    if snapshot is not None and diagram is None:
        raise SettingError("--snapshot chooses the cut that --diagram draws: give --diagram FILE.svg, too")


def _draw(play: Play, results: list[Result], title: str, path: str, snapshot: int | None) -> None:
    """Draw what was simulated; everything needed is in the log that the oracle reads."""
    from ray_snapshot.commands.files import write_file
    from ray_snapshot.reports import runs
    from ray_snapshot.views.space_time import Control, diagram

    events = runs.simulated_events(play.system.log)
    cuts = runs.simulated_cuts(play.system.log, play.system.tokens, snapshot)
    control = [Control(*found) for found in play.system.control]
    if snapshot is None or not results[snapshot].is_consistent:  # then there is no equivalent computation
        text = diagram(events, cuts, control=control, title=title)
    else:
        text = runs.both_ways(events, cuts[0], [one for one in control if one.label.endswith(f" {snapshot}")])
    write_file(path, text)


def as_json_line(result: Result, protocol: str = CHANDY_LAMPORT, *, is_one_run: bool = True) -> str:
    """One snapshot, as `--json` prints it; what it cost is a fact of one run, and the same snapshot may come of many."""
    found: dict[str, Any] = {
        "snapshot": result.number,
        "complete": result.is_complete,
        "machines": result.machines,
        "messages": [_named(("source", "target", "tokens"), message) for message in result.messages],
        "consistent": result.is_consistent,
    }
    if protocol == CHANDY_LAMPORT and len(result.initiators) == 1:
        return json.dumps(found)  # these keys and no others: programs rely on the line as it is
    if protocol == AT_LEAST_ONCE:
        found["duplicates"] = [_named(("source", "target", "messages"), item) for item in result.duplicates]
    found["initiators"] = list(result.initiators)
    if is_one_run:
        found["control_messages"] = result.control_message_count
        found["waited"] = {name: count for name, count in result.blocked.items() if count}
    return json.dumps(found)


def _named(names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def listing(play: Play) -> list[str]:
    """What happened, a line each: the tick, the event, and each machine's tokens after it."""
    names = list(play.system.tokens)
    shown = names if len(names) <= _MOST_COLUMNS else []
    width = max([5, *(len(row.text) for row in play.rows)])
    widths = [max(6, len(name)) for name in shown]
    head = _columns(shown, widths)
    lines = [f"{play.unit:>4}  {'event':<{width}}  {head}".rstrip()]
    for row in play.rows:
        lines.append(f"{row.tick:>4}  {row.text:<{width}}  {_columns(row.tokens, widths)}".rstrip())
    return lines


def _columns(values: Any, widths: list[int]) -> str:
    return "  ".join(f"{value:>{width}}" for value, width in zip(values, widths, strict=False))


def snapshots(results: list[Result]) -> list[str]:
    """What each snapshot recorded."""
    lines = []
    for result in results:
        start = ", ".join(result.initiators)
        control = f"; {result.control_message_count} control messages" if result.is_complete else ""
        lines += ["", f"snapshot {result.number}, started by {start}: {_verdict(result)}{control}"]
        lines += [f"  {name:<12} {tokens:>6}" for name, tokens in result.machines.items()]
        lines += [
            f"  {f'{source} -> {target}':<12} {tokens:>6}  in flight" for source, target, tokens in result.messages
        ]
        lines += [
            f"  {f'{source} -> {target}':<12} {count:>6}  accepted, to be repeated by a restore"
            for source, target, count in result.duplicates
        ]
        waited = [f"{name} {count}" for name, count in result.blocked.items() if count]
        lines += [f"  messages that waited while their machine aligned: {', '.join(waited)}"] if waited else []
        total = sum(result.machines.values()) + sum(message[2] for message in result.messages)
        lines.append(f"  {'total':<12} {total:>6}")
    return lines


def _verdict(result: Result) -> str:
    if not result.is_complete:
        return "not complete; recorded so far"
    if result.duplicates and not result.problem:
        return "complete; not consistent, by design"
    return "complete and consistent" if result.is_consistent else f"NOT CONSISTENT: {result.problem}"


def _print_every_order(found: Exhausted, as_json: bool, protocol: str) -> None:
    results = [found.results[key] for key in sorted(found.results, key=repr)]
    summary = {"states": found.states, "ends": found.ends, "snapshots": len(results), "consistent": found.is_consistent}
    lines = [as_json_line(result, protocol, is_one_run=False) for result in results] if as_json else snapshots(results)
    for line in lines:
        print(line)
    if as_json:
        print(json.dumps(summary))
    else:
        by_design = "some are not consistent, by design" if protocol == AT_LEAST_ONCE else "NOT ALL ARE CONSISTENT"
        verdict = "all are consistent" if found.is_consistent else by_design
        print(f"\nevery order: {found.states} states, {found.ends} ends, {len(results)} distinct snapshots; {verdict}")
    _exit_if_wrong(results, protocol)


def _exit_if_wrong(results: list[Result], protocol: str) -> None:
    """Exit with code 1 if a snapshot is not what it says it is; or is inconsistent, unless its protocol allows that."""
    if any(result.problem or (result.is_consistent is False and protocol != AT_LEAST_ONCE) for result in results):
        raise typer.Exit(1)
