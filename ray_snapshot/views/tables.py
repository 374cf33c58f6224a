"""Rows and verdicts: as rich tables on a terminal, as plain aligned lines in a pipe, as JSON lines.

Text from outside (names, sentences, states) is printed without markup and without control characters, so
that it can neither colour nor move anything. Rich is imported only when a terminal is there to be rich on.
"""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from ray_snapshot.streams import shown
from ray_snapshot.wrapping import INDENT, room_on, wrapped

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_CELL = 200

_GAP = 2
"""Columns of a table between two of its columns."""

_NARROWEST_TEXT = 24
"""Text that may be wrapped gets so much room, if it needs it."""

_LONGEST_WORD = 40
"""Text with a longer word than `_NARROWEST_TEXT` gets room for that word, up to so much."""

_SHORT_TEXT = 12
"""Text of at most so many columns stays in its row, wherever the longer ones go."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, the key or function that gives a row's value, and whether to align right."""

    heading: str
    value: str | Callable[[Any], Any]
    right: bool = False
    wraps: bool = False
    """Whether it is text that may be broken over several lines; ids and numbers never are."""
    minor: int = 0
    """A terminal that is too narrow does without the columns with the highest number first; 0: it must be shown."""

    def cell(self, row: Mapping[str, Any]) -> str:
        """The text of this column in one row."""
        return text_of(row.get(self.value) if isinstance(self.value, str) else self.value(row))


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def console(*, stderr: bool = False) -> Console:
    """A rich console that prints what it is given: no markup, no highlights, no wrapping in a pipe."""
    from rich.console import Console

    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.soft_wrap = True
    return made


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None] | None]:
    """On a terminal, stderr shows a text as long as this lasts; gives what changes it, None elsewhere."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield None
        return
    with out.status(text) as shown:
        yield shown.update


def print_table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], *, title: str | None = None, more: int = 0
) -> None:
    """Print a table; `more` is how many further rows are not shown."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    if is_terminal():
        _print_rich(cells, columns, title, console())
    else:
        _print_plain(cells, columns, title)
    if more:
        print(f"... and {more} more")


def print_fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print name and value pairs, one a line, the values aligned."""
    listed = [(name, text_of(value)) for name, value in pairs]
    for line in _field_lines(listed, room_on(sys.stdout)):
        print(line)


def print_json(row: Mapping[str, Any]) -> None:
    """Print one row as a line of strict JSON: times in ISO 8601, NaN as null, ASCII only."""
    print(json_text(row))


def json_text(row: Mapping[str, Any]) -> str:
    """One row as strict JSON, in one line."""
    return json.dumps(_jsonable(row), allow_nan=False, separators=(",", ":"))


def text_of(value: Any) -> str:
    """A value as one line of text for a person."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            return one_line(value)
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        case float():
            return f"{value:.3g}" if abs(value) < 1_000 else f"{value:.0f}"
        case list() | tuple() if all(isinstance(item, str) for item in value):
            return one_line(", ".join(value)) or "-"
        case list() | tuple() | dict():
            text = json.dumps(_jsonable(value), ensure_ascii=False)
            return one_line(text if len(text) <= _LONGEST_CELL else text[:_LONGEST_CELL] + " ...")
        case _:
            return one_line(str(value))


def one_line(text: str) -> str:
    """`text` with line breaks and other spaces as spaces, and what a terminal would obey escaped."""
    return text if text.isprintable() else shown("".join(" " if char.isspace() else char for char in text))


def _print_rich(cells: list[list[str]], columns: Sequence[Column], title: str | None, screen: Console) -> None:
    """A table no wider than the screen: minor columns are left out, and named; if that is not enough, long texts come below
    their rows, and if not even that, a row is a block."""
    widths = _widths(cells, columns)
    shown = _fitting(columns, widths, screen.width)
    if _needed(shown, widths) <= screen.width:
        chosen = [columns[n] for n in shown]
        screen.print(_rich_table([[row[n] for n in shown] for row in cells], chosen, [widths[n] for n in shown], title))
        _say_left_out([column.heading for n, column in enumerate(columns) if n not in shown], screen)
        return
    texts = [n for n, column in enumerate(columns) if column.wraps and widths[n] > _SHORT_TEXT]
    whole = _widths([[column.heading for column in columns], *cells], columns)  # no heading is broken there
    in_row = _fitting(columns, whole, screen.width, without=texts)
    if texts and in_row and _needed(in_row, whole) <= screen.width:
        _print_stacked(cells, columns, [(n, whole[n]) for n in in_row], texts, title, screen)
        _say_left_out([column.heading for n, column in enumerate(columns) if n not in (*in_row, *texts)], screen)
    else:
        _print_blocks(cells, columns, title, screen)


def _say_left_out(headings: Sequence[str], screen: Console) -> None:
    if headings:
        screen.print(f"(no room for: {', '.join(headings)}; widen the terminal, or use --json)")


def _rich_table(cells: list[list[str]], columns: Sequence[Column], widths: list[int], title: str | None) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
    )
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            "\n".join(textwrap.wrap(column.heading, width)),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.wraps,
            min_width=width,
        )
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _widths(cells: list[list[str]], columns: Sequence[Column]) -> list[int]:
    """What each column needs: its longest cell and the longest word of its heading; text that wraps needs less."""
    from rich.cells import cell_len

    needed = []
    for number, column in enumerate(columns):
        longest = max((cell_len(row[number]) for row in cells), default=0)
        heading = max(map(len, column.heading.split()), default=0)
        if column.wraps:
            word = max((cell_len(word) for row in cells for word in row[number].split()), default=0)
            longest = min(longest, max(_NARROWEST_TEXT, min(word, _LONGEST_WORD)))
        needed.append(max(heading, longest))
    return needed


def _needed(shown: Sequence[int], widths: Sequence[int]) -> int:
    """How wide a table of these columns is."""
    return sum(widths[n] for n in shown) + _GAP * max(0, len(shown) - 1)


def _fitting(columns: Sequence[Column], widths: list[int], room: int, without: Sequence[int] = ()) -> list[int]:
    """Which columns are shown; `without`: not in the table in any case."""
    shown = [n for n in range(len(columns)) if n not in without]
    while _needed(shown, widths) > room:
        least = max(shown, key=lambda n: columns[n].minor)
        if not columns[least].minor:
            break
        shown.remove(least)
    return shown


def _print_stacked(
    cells: list[list[str]],
    columns: Sequence[Column],
    in_row: Sequence[tuple[int, int]],
    texts: Sequence[int],
    title: str | None,
    screen: Console,
) -> None:
    """Each row in a line, aligned, and below it its long texts. `in_row`: the columns of the line, with their widths."""
    if title:
        _put(title, screen, "bold")
    lines = [[columns[n].heading for n, _ in in_row], *([row[n] for n, _ in in_row] for row in cells)]
    heading, *rows = _aligned(lines, [columns[n] for n, _ in in_row], [width for _, width in in_row])
    _put(heading, screen, "bold")
    _put("─" * max(map(len, (heading, *rows))), screen)
    for line, row in zip(rows, cells, strict=True):
        _put(line, screen)
        for n in texts:
            if row[n] != text_of(None):
                for text in wrapped(f"{' ' * INDENT}{columns[n].heading}: {row[n]}", screen.width):
                    _put(text, screen)


def _print_blocks(cells: list[list[str]], columns: Sequence[Column], title: str | None, screen: Console) -> None:
    """Each row as lines of name and value: a value that is longer than a line goes on in the next, and nothing is cut."""
    if title:
        _put(title, screen, "bold")
    for row in cells:
        pairs = [(column.heading, cell) for column, cell in zip(columns, row, strict=True)]
        for line in _field_lines(pairs, screen.width):
            _put(line, screen)
        _put("", screen)


def _put(line: str, screen: Console, style: str | None = None) -> None:
    """A line as it is: a word that is too long for it is broken by the terminal, which copies it in one piece."""
    screen.print(line, style=style, soft_wrap=True)


def _field_lines(pairs: Sequence[tuple[str, str]], room: int | None) -> Iterator[str]:
    """Names and values, aligned, the values broken between words where there is no room; None: they are not broken."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        line = f"{name.ljust(width)}  {value}".rstrip()
        yield from wrapped(line, room, hanging=width + _GAP)


def _print_plain(cells: list[list[str]], columns: Sequence[Column], title: str | None) -> None:
    if title:
        print(title)
    lines = [[column.heading for column in columns], *cells]
    widths = [max(len(line[number]) for line in lines) for number in range(len(columns))]
    for line in _aligned(lines, columns, widths):
        print(line)


def _aligned(lines: Iterable[Sequence[str]], columns: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
    for line in lines:
        padded = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        yield "  ".join(padded).rstrip()


def _jsonable(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _jsonable(item) for key, item in value.items()}
        case list() | tuple():
            return [_jsonable(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case datetime() | date():
            return value.isoformat()
        case _:
            return str(value)
