"""Who may import whom: the table in docs/architecture.md, held against the code, and against what Python loads."""

import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from clean import ran

ROOT = Path(__file__).parent.parent
LINE = re.compile(r"^\| ([a-z_.]+) \| ([^|\d]+) \| ([^|\d]*) \|$", re.MULTILINE)
LIBRARIES = ("ray", "pyspark")

INSIDE = """
base: commands 1, detectors 1, history 1, instrument 3, runtime 6
commands: detectors 2, doctor 3, history 13, instrument 10, reports 9, runtime 10, simulation.tokens 3, synth 2,\
 testing 9, unprepared 4, web 8, witness 14
doctor: history 2, instrument 4, spark_jobs.engine 2, unprepared 3
instrument: detectors 7, history 1
instrument.hooks: instrument.crossing 1
reports: simulation.mail 1, witness 1
runtime: instrument 1, instrument.hooks 1
runtime.driver: runtime.host 2
runtime.host: instrument.crossing 1
runtime.service: runtime.host 1
spark_jobs: witness 4
spark_jobs.engine: commands 1
testing: history 2
web: commands 1, instrument 2, runtime 1
witness: history 3, reports 1, views 1
"""
"""How often a room imports, inside functions or for the type checker, another that it must not import at its top. Only ever
fewer, and no pair more."""


def words(text: str) -> set[str]:
    return {word.strip() for word in text.split(",")} - {""}


TABLE = {
    room: (words(may), words(never))
    for room, may, never in LINE.findall((ROOT / "docs/architecture.md").read_text())[1:]  # the first is the head
}


def room_of(module: str) -> str:
    """The room of a module of ours."""
    parts = module.split(".")[1:]
    for length in (2, 1):
        if ".".join(parts[:length]) in TABLE:
            return ".".join(parts[:length])
    return "base" if len(parts) < 2 or parts[0] == "plain" else parts[0]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the product, as it is imported, but the examples."""
    for path in sorted(ROOT.glob("ray_snapshot/**/*.py")):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path
    for room in ("detectors", "spark_jobs"):
        for path in sorted(ROOT.glob(f"{room}/**/*.py")):
            if path.parent.name != "pyspark_ray_snapshot":  # a package by itself, that Spark looks for by this name
                name = ".".join(("ray_snapshot", *path.relative_to(ROOT).with_suffix("").parts))
                yield name.removesuffix(".__init__"), path


def imported(node: ast.AST) -> Iterator[str]:
    """What runs when the module is imported: nothing inside functions, nothing for the type checker only."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        for other in node.orelse:
            yield from imported(other)
        return
    yield from named(node)
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def named(node: ast.AST) -> Iterator[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield from ([f"{node.module}.{name.name}" for name in node.names] if "." not in node.module else [node.module])


def graph() -> dict[str, set[str]]:
    """By room: the rooms and libraries that it imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in modules():
        room = room_of(module)
        for name in imported(tree_of(path)):
            if name.startswith("ray_snapshot."):
                found[room].add(room_of(name))
            elif name.split(".")[0] in LIBRARIES:
                found[room].add(name.split(".")[0])
        found[room].discard(room)
    return found


def test_each_room_imports_what_the_page_says_and_no_more() -> None:
    found = graph()
    assert {room: names for room, names in found.items() if room not in TABLE and names} == {}
    assert {room: found[room] for room in TABLE} == {room: may for room, (may, _) in TABLE.items()}


def test_what_is_imported_inside_functions_and_for_types_gets_less() -> None:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for module, path in modules():
        room = room_of(module)
        for node in ast.walk(tree_of(path)):
            others = [room_of(name) for name in named(node) if name.startswith("ray_snapshot.")]
            found[room].update(other for other in others if other not in {room, *TABLE.get(room, ({},))[0]})
    told = {room: ", ".join(f"{name} {found[room][name]}" for name in sorted(found[room])) for room in sorted(found)}
    lines = [f"{room}: {names}" for room, names in told.items() if names]
    assert lines == INSIDE.split("\n")[1:-1], "write in INSIDE, if it is less:\n" + "\n".join(
        {*lines} - {*INSIDE.split("\n")}
    )


def test_rooms_without_ray_load_without_it() -> None:
    """Whatever is imported on the way, and wherever. What all of them together do not load, none of them loads."""
    rooms = {
        room
        for room, (_, never) in TABLE.items()
        if "ray" in never and room not in ("base", "spark_jobs", "spark_jobs.engine")
    }
    names = [module for module, _ in modules() if room_of(module) in rooms and not module.endswith("__main__")]
    check = f"found = [one for one in {LIBRARIES} if one in sys.modules]\n    if found: sys.exit(f'{{name}} loads {{found}}')"
    assert loaded(names, check) == (0, "")


def loaded(names: list[str], check: str) -> tuple[int, str]:
    """How a process ends that loads these modules, and what it says; `check` runs behind each."""
    code = f"import importlib, sys\nfor name in {names}:\n    importlib.import_module(name)\n    {check}"
    done = ran(sys.executable, "-c", code)
    return done.returncode, done.stderr


def test_loading_a_module_makes_no_arrow_array() -> None:
    """At the first pyarrow imports pandas: a quarter of a second and 30 MB for each process that loads the module."""
    rooms = [(module, room_of(module)) for module, _ in modules() if not module.endswith("__main__")]
    names = [module for module, room in rooms if not room.startswith("spark_jobs")]  # Spark imports it itself
    assert loaded(names, "if 'pandas' in sys.modules: sys.exit(name)") == (0, "")


def test_private_names_of_ray_stand_in_six_files() -> None:
    private = re.compile(r"\bray\._(private|raylet)|from ray\._")
    found = {
        path.name
        for _, path in modules()
        if any(private.search(line) and "import" in line for line in path.read_text().splitlines())
    }
    assert found == {"capacity.py", "shape.py", "task_shape.py", "cluster_shape.py", "records.py", "leaving.py"}


def test_what_waits_with_a_bound_hears_that_it_is_cancelled() -> None:
    """On Python 3.11 `asyncio.wait_for` swallows a cancellation that comes together with what it waits for."""
    assert [path.name for _, path in modules() if "asyncio.wait_for(" in path.read_text()] == []


def test_no_class_on_ray_is_extended_twice() -> None:
    """What a part can do is read in its own file, or in one more."""
    bases: dict[str, list[str]] = {}
    for module, path in modules():
        if room_of(module).split(".")[0] in ("runtime", "instrument"):
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
    chains = {
        (name, base, last) for name in bases for base in bases[name] for last in bases.get(base, ()) if last in bases
    }
    assert chains == set()


def test_every_package_is_packed() -> None:
    """A wheel has only what the list in pyproject.toml names; an editable install has all."""
    packed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    ours = {".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.glob("ray_snapshot/**/__init__.py")}
    assert ours <= packed


def test_each_test_file_has_a_name_of_its_own() -> None:
    """The folders of tests are no packages: of two modules with one name, the second to be collected is an error."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in (ROOT / "tests").rglob("test_*.py"):
        found[path.name].append(str(path.parent.relative_to(ROOT)))
    assert {name: folders for name, folders in found.items() if len(folders) > 1} == {}
