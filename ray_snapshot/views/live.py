"""A running system on one screen, as `ray-snapshot top` shows it: rich only where a terminal is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ray_snapshot.names import word_for
from ray_snapshot.views.tables import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

MOST_ROWS = 12
"""So many classes are shown, those with most machines, and so many of the last snapshots."""
MOST_SENTENCE = 400
STATUSES = ("active", "blocked", "passive", "stopped")
_STYLES = {"ALARM": "bold red", "cannot be told": "yellow"}


def screen(said: Mapping[str, Any]) -> RenderableType:
    """What `top.said` says, drawn."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(_head(said), style="bold"), Text(_course(said))]
    if said["trouble"]:
        parts.append(Text(f"it did not answer: {one_line(said['trouble'])}", style="bold red"))
    parts += [Text(f"not covered: {one_line(gap)}", style="yellow") for gap in said["not_covered"][:3]]
    parts += [Text(), _verdicts(said["verdicts"]), Text(), _classes(said["classes"], said["noun"])]
    return Group(*parts, Text(), _snapshots(said["snapshots"]))


def lines(said: Mapping[str, Any]) -> list[str]:
    """The same in plain lines."""
    found = [_head(said), _course(said)]
    if said["trouble"]:
        found.append(f"it did not answer: {one_line(said['trouble'])}")
    found += [f"not covered: {one_line(gap)}" for gap in said["not_covered"]]
    for one in said["verdicts"]:
        first, *more = _told(one)
        found += [f"{one_line(one['detector'])}: {one['word']}. {first}", *(f"  {line}" for line in more)]
    for one in said["classes"]:
        counts = ", ".join(f"{one[name]:,} {word_for(name, said['noun'])}" for name in STATUSES if one[name])
        many = _counted(one["machines"], said["noun"])
        found.append(f"{one_line(one['class'])}: {many} ({counts}), largest backlog {one['backlog']:,}")
    return found


def _told(one: Mapping[str, Any]) -> list[str]:
    """Of an alarm where the actors are that make it, else its sentence."""
    return [one_line(line.strip()) for line in one["lines"]] or [one_line(one["sentence"])[:MOST_SENTENCE]]


def _head(said: Mapping[str, Any]) -> str:
    text = f"{one_line(said['system'])}  run {one_line(said['run_id'])[:8]}"
    text += f"  {_counted(said['machines'], said['noun'])}" if said["noun"] else ""  # before the first snapshot: either
    return text + (f"  rolled back: {said['restores']:,}" if said["restores"] else "")


def _course(said: Mapping[str, Any]) -> str:
    text = _counted(said["completed"], "snapshot")
    if said["aborted"]:
        text += f", {said['aborted']:,} given up"
    for one in said["open"]:
        text += f", one being taken ({one['reported']:,} of {one['reported'] + one['lacking']:,} parties have reported)"
    if said["age_s"] is not None:
        text += f"; the last {said['age_s']:,.0f} s ago"
    return text + pace(said)


def pace(said: Mapping[str, Any]) -> str:
    """How often snapshots are taken, and what they take; empty without a clock."""
    if said["every"] is None:
        return ""
    text = f"; one every {said['interval_s']:.3g} s"
    text += f" for {said['every']} of a processor" if isinstance(said["every"], str) else ""
    return text if said["cpu_share"] is None else f"{text}: {said['cpu_share']:.2%} where they take most"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _verdicts(found: Sequence[Mapping[str, Any]]) -> Table:
    from rich.text import Text

    table = _table("detector", "says", "")
    for one in found:
        style = _STYLES.get(one["word"].partition(":")[0], "")
        table.add_row(Text(one_line(one["detector"])), Text(one["word"], style=style), Text("\n".join(_told(one))))
    return table


def _classes(found: Sequence[Mapping[str, Any]], noun: str) -> Table:
    heads = (word_for(name, noun) for name in STATUSES)
    table = _table("class", f"{noun}s", *heads, "largest backlog", numbers=True)
    for one in found[:MOST_ROWS]:
        numbers = (one["machines"], *(one[name] for name in STATUSES), one["backlog"])
        _add(table, one["class"], *(f"{number:,}" for number in numbers))
    if len(found) > MOST_ROWS:
        _add(table, f"... and {len(found) - MOST_ROWS:,} more classes")
    return table


def _snapshots(found: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("snapshot", "began (UTC)", "ms", "slowest, ms", "in flight", "bytes", numbers=True)
    for one in found[-MOST_ROWS:][::-1]:
        if one["status"] != "complete":
            _add(table, f"{one['sequence']:,}", f"{one['started_at']:%H:%M:%S}", "given up")
            continue
        numbers = (
            f"{one['duration_ms']:,.1f}",
            f"{one['record_delay_ms']:,.1f}",
            f"{one['in_flight']:,}",
            f"{one['bytes']:,}",
        )
        _add(table, f"{one['sequence']:,}", f"{one['started_at']:%H:%M:%S}", *numbers)
    return table


def _table(*heads: str, numbers: bool = False) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for at, head in enumerate(heads):
        table.add_column(head, justify="right" if numbers and at else "left", no_wrap=numbers and not at)
    return table


def _add(table: Table, *texts: str) -> None:
    from rich.text import Text

    table.add_row(*(Text(one_line(text)) for text in texts))
