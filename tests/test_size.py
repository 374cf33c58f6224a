"""How large the product may be: the table in docs/architecture.md, held against the code.

`python tests/test_size.py` rewrites it. A ceiling is what there is: of lines, rounded up to the next 250. So it falls with the
code. One above the lowest that it ever was, or of a new room, needs a dated line in docs/decisions.md.
"""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.cli import make_app
from ray_snapshot.spark_jobs import JOBS

ROOT = Path(__file__).parent.parent
PAGE, DECISIONS = ROOT / "docs/architecture.md", ROOT / "docs/decisions.md"
STEP = 250
LINE = re.compile(r"^\| ([\w./ ]+) \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)
MAY_REACH = re.compile(r"\._[A-Za-z]|setattr|import .*\b_[A-Za-z]|^    _[A-Za-z]\w*( as \w+)?,$", re.MULTILINE)
PRODUCT = ("ray_snapshot", "detectors", "spark_jobs")


def room_of(path: Path) -> str:
    """The room that a file's lines count in."""
    first, second, *_ = path.parts
    if first == "tests":
        return "tests/worlds" if second == "worlds" else "tests"
    return f"{first}/{second}" if first == "ray_snapshot" and not second.endswith(".py") else first


def rooms() -> Counter[str]:
    """Lines of Python by room."""
    found: Counter[str] = Counter()
    for top in (*PRODUCT, "examples", "benchmarks", "tests"):
        for path in (ROOT / top).rglob("*.py"):
            found[room_of(path.relative_to(ROOT))] += path.read_bytes().count(b"\n")
    return found


def commands(group: Any) -> Iterator[Any]:
    """Those that `--help` shows, and those in groups of them."""
    for one in group.commands.values():
        if not one.hidden:
            yield from commands(one) if hasattr(one, "commands") else (one,)


def counts() -> dict[str, int]:
    """What users have to know of, and what keeps tests from letting the product change."""
    app = typer.main.get_command(make_app())
    shown = [*commands(app)]
    code = "\n".join(path.read_text() for path in (ROOT / "ray_snapshot").rglob("*.py"))
    return {
        "commands": sum(not one.hidden for one in app.commands.values()),  # type: ignore[attr-defined]
        "options": sum(len(one.params) for one in shown),
        "settings": len(rs.Settings.model_fields),
        "environment variables": len({*re.findall(r'^\w+ = "(RAY_SNAPSHOT_[A-Z_]+)"$', code, re.MULTILINE)}),
        "kinds of detectors": sum(inspect.isclass(getattr(detectors, name)) for name in detectors.__all__),
        "Spark jobs": len(JOBS),
        "public names": sum(not name.startswith("_") for name in dir(rs)),
        **reaches(),
    }


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def reaches() -> Counter[str]:
    """What tests touch that the product promises to nobody: its private names, and functions that they replace.

    Mutants are no patches: they are the product, broken on purpose.
    """
    texts = (path.read_text() for top in PRODUCT for path in (ROOT / top).rglob("*.py"))
    private = {name for text in texts for name in re.findall(r"\b_[A-Za-z]\w*", text)}
    found = Counter({"private names in tests": 0, "patches in tests": 0})
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if MAY_REACH.search(text) else ():
            if isinstance(node, ast.Attribute) and node.attr in private:
                found["private names in tests"] += getattr(node.value, "id", "") not in ("self", "cls")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ray_snapshot"):
                found["private names in tests"] += sum(is_private(name.name) for name in node.names)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
                found["patches in tests"] += "mutants" not in path.name
    return found


def sizes() -> dict[str, int]:
    """What the table must say, of rooms and counts."""
    lines = {room: -(-count // STEP) * STEP for room, count in sorted(rooms().items())}
    return {**lines, **counts()}


def table(page: str) -> dict[str, tuple[int, int]]:
    """By room or count: at most, and the lowest that this ever was."""
    return {name: (number(most), number(lowest)) for name, most, lowest in LINE.findall(page)}


def number(text: str) -> int:
    return int(text.replace(",", ""))


def rows(page: str) -> list[str]:
    """The rows as they must stand on the page."""
    said = table(page)
    return [f"| {name} | {most:,} | {min(most, said.get(name, (most, 0))[1]):,} |" for name, most in sizes().items()]


def test_nothing_grows_and_what_shrinks_stays_small() -> None:
    page = PAGE.read_text()
    there = [line[0] for line in LINE.finditer(page)]
    new = [row for row in rows(page) if row not in there]
    assert there == rows(page), "\n".join(["write in docs/architecture.md (python tests/test_size.py does):", *new])


def test_a_ceiling_that_was_raised_has_its_reason() -> None:
    begun = {
        text.partition(".** ")[0]
        for text in re.findall(r"^\*\*20\d\d-\d\d-\d\d · (.+)", DECISIONS.read_text(), re.MULTILINE)
    }
    ceilings = table(PAGE.read_text()).items()
    raised = {f"The ceiling of {name} is {most:,}" for name, (most, lowest) in ceilings if most > lowest}
    assert raised <= begun, (
        "write in docs/decisions.md, with a reason behind it: **YYYY-MM-DD · The ceiling of NAME is NUMBER.**"
    )


if __name__ == "__main__":
    page = PAGE.read_text()
    first, *_, last = LINE.finditer(page)
    PAGE.write_text(page[: first.start()] + "\n".join(rows(page)) + page[last.end() :])
