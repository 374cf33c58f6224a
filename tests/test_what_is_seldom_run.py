"""Programs that no test runs from end to end (`benchmarks/`, `.ci/`): what they import of ours is there, wherever they do."""

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("ray_snapshot", "benchmarks")
PROGRAMS = sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / ".ci").glob("*.py")])


def imported(program: Path) -> Iterator[tuple[str, str | None]]:
    """Each module of ours that is imported anywhere in it, and what is taken from it."""
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Import):
            yield from ((one.name, None) for one in node.names if one.name.split(".")[0] in OURS)
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in OURS:
            yield from ((str(node.module), one.name) for one in node.names)


def is_there(module: str, name: str | None) -> bool:
    try:
        found = import_module(module)
        return name is None or hasattr(found, name) or find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in OURS:
            raise
        return False


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: f"{one.parent.name}/{one.name}")
def test_what_it_imports_is_there(program: Path) -> None:
    assert [one for one in imported(program) if not is_there(*one)] == []
