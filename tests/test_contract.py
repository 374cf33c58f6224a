"""The guard set: tests marked `contract` know the product by its commands, public names and files, and by nothing else.

They stay as they are while what is behind those is made anew. What a test uses of its file, of fixtures, of the suite's modules
and of programs that it starts is looked at with it; what `tests/conftest.py` gives it is not.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOMS = ("detectors", "history", "pipelines", "questions", "testing")
PUBLIC = {
    "ray_snapshot": {*dir(import_module("ray_snapshot")), *ROOMS, "cli", "errors", "examples"},
    "ray_snapshot.cli": {"main", "make_app"},
    **{f"ray_snapshot.{room}": {*import_module(f"ray_snapshot.{room}").__all__} for room in ROOMS},
}
IN_TEXT = re.compile(r"\bray_snapshot(?:\.| import )([a-z]\w+)")
FLOOR = 800
"""How many tests are marked at least, in steps of 50; fewer only where a feature is gone on purpose (`docs/decisions.md`)."""


def is_public(name: str) -> bool:
    """Whether a dotted name of the product is promised to users."""
    room, _, last = name.rpartition(".")
    if room in PUBLIC:
        return last in PUBLIC[room]
    return not room or name.startswith("ray_snapshot.examples.") or name.endswith("Error") or is_public(room)


@cache
def module(path: Path) -> tuple[dict[str, list[ast.stmt]], dict[str, str]]:
    """By name, what defines it in a file (`*`: all of the file), and as what it is imported."""
    statements = ast.parse(path.read_text() if path.exists() else "").body
    there: dict[str, list[ast.stmt]] = {"*": statements}
    for one in statements:
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            there.setdefault(one.name, []).append(one)
        elif isinstance(one, (ast.Assign, ast.AnnAssign)):
            for node in ast.walk(one):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    there.setdefault(node.id, []).append(one)
    return there, {name: dotted for one in statements for node in ast.walk(one) for name, dotted in imported(node)}


def imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        yield from ((name.asname or name.name.partition(".")[0], name.name) for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((name.asname or name.name, f"{node.module}.{name.name}") for name in node.names)


@cache
def file_of(name: str, folder: Path) -> Path | None:
    """The suite's module or program of this name, the nearest."""
    found = sorted(files().get(name, ()), key=lambda path: path.parent not in (folder, HERE))
    return found[0] if found else None


@cache
def files() -> dict[str, list[Path]]:
    """By name: the suite's modules and programs."""
    found: dict[str, list[Path]] = {}
    for path in HERE.rglob("*.py"):
        found.setdefault(path.stem, []).append(path)
    return found


@cache
def used(path: Path, name: str) -> set[str | tuple[Path, str]]:
    """By what a name stands for in a file: names of the suite, with their file, and as text what users are not promised."""
    there, names = module(path)
    if name in there:
        return {use for one in there[name] for node in ast.walk(one) for use in uses(path, node)}
    if name in names:
        return {*uses_of_import(path, names[name])}
    beside = path.parent / "conftest.py"
    return set() if beside in (path, HERE / "conftest.py") else {(beside, name)}


def uses(path: Path, node: ast.AST) -> Iterator[str | tuple[Path, str]]:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name):
            yield path, name
        case ast.Attribute(value=value, attr=attr):
            base = value.id if isinstance(value, ast.Name) else ""
            if attr == "setattr" or (re.match("_[^_]", attr) and base not in ("self", "cls", "os")):
                yield f"{base}.{attr}"
            if base in (names := module(path)[1]):
                yield from uses_of_import(path, f"{names[base]}.{attr}")
        case ast.Constant(value=str(text)):
            yield from (
                f"ray_snapshot.{name}" for name in IN_TEXT.findall(text) if not is_public(f"ray_snapshot.{name}")
            )
            if text.endswith(".py") and (program := file_of(Path(text).stem, path.parent)):
                yield program, "*"
        case ast.Import() | ast.ImportFrom():
            for _, dotted in imported(node):
                yield from uses_of_import(path, dotted)


def uses_of_import(path: Path, dotted: str) -> Iterator[str | tuple[Path, str]]:
    room, _, last = dotted.rpartition(".")
    if dotted.partition(".")[0] in ("ray_snapshot", "worlds"):
        yield from () if is_public(dotted) and not dotted.startswith("worlds") else [dotted]
    elif helper := file_of(room.rpartition(".")[2], path.parent):
        yield helper, last


def marked() -> Iterator[tuple[Path, str]]:
    """Each that is marked, with its file."""
    for path in sorted(HERE.rglob("test_*.py")):
        everywhere = any("mark.contract" in ast.unparse(one) for one in module(path)[0].get("pytestmark", ()))
        for one in module(path)[0]["*"]:
            is_test = isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
            if is_test and (everywhere or has_decorator(one, "mark.contract")):
                yield path, one.name


def has_decorator(one: ast.stmt, words: str) -> bool:
    return any(words in ast.unparse(mark) for mark in getattr(one, "decorator_list", ()))


def beyond(path: Path, name: str) -> list[str]:
    """What a test uses that no user is promised, with the fixtures that its file or folder has for all."""
    todo: list[str | tuple[Path, str]] = [(path, name)]
    for file in (path, path.parent / "conftest.py"):
        todo += [(file, one.name) for one in module(file)[0]["*"] if has_decorator(one, "autouse=True")]  # type: ignore[attr-defined]
    seen = {*todo}
    for use in todo:
        new = used(*use) - seen if isinstance(use, tuple) else set()
        seen |= new
        todo += new
    return sorted(use for use in seen if isinstance(use, str))


def test_what_is_marked_contract_knows_only_what_users_do() -> None:
    found = {f"{path.name}::{name}": beyond(path, name) for path, name in marked()}
    assert {test: names for test, names in found.items() if names} == {}


def test_the_guard_set_only_grows() -> None:
    assert sum(1 for _ in marked()) // 50 * 50 == FLOOR, (
        "more tests are marked: raise FLOOR; fewer: give the marks back"
    )


def test_the_reference_says_what_the_code_says(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = HERE.parent / "docs"
    monkeypatch.syspath_prepend(docs)
    written = import_module("generated").written
    pages = {page.name: page.read_text("utf-8") for page in (docs / "reference").glob("*.md")}
    assert sum("<!-- end of " in text for text in pages.values()) == 4
    assert [name for name, text in pages.items() if text != written(text)] == [], "make reference writes them"
