"""Tests bring nothing along: every process that they start gets an environment that is made from nothing."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from clean import clean_environment

TESTS = Path(__file__).parent
STARTERS = {"run", "Popen", "call", "check_call", "check_output"}


def inherited(source: str) -> Iterator[int]:
    """Lines that start a process without saying its environment, or that pass on the test's own."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="subprocess"), attr=attr), keywords=given):
                if attr in STARTERS and not any(item.arg == "env" for item in given):
                    yield node.lineno
            case ast.Dict(keys=keys, values=values):
                unpacked = [ast.unparse(value) for key, value in zip(keys, values, strict=True) if key is None]
                if "os.environ" in unpacked:
                    yield node.lineno
            case ast.BinOp(left=left) if ast.unparse(left) == "os.environ":
                yield node.lineno
            case ast.Call(func=func, args=args) if ast.unparse(node) == "os.environ.copy()" or (
                ast.unparse(func) == "dict" and "os.environ" in map(ast.unparse, args)
            ):
                yield node.lineno
            case ast.Attribute(attr="items") if ast.unparse(node) == "os.environ.items":
                yield node.lineno


def places(look: Callable[[str], Iterator[int]]) -> list[str]:
    """Where tests do what is looked for; a text without either word does not."""
    texts = {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    return [
        f"{path}:{line}"
        for path, text in texts.items()
        if "subprocess" in text or "os.environ" in text
        for line in look(text)
    ]


def test_no_test_starts_a_process_with_the_environment_of_the_tests() -> None:
    assert not places(inherited), "use clean_environment() of tests/clean.py"


def unbounded(source: str) -> Iterator[int]:
    """Lines that open a block which is left only when a process ends by itself."""
    for node in ast.walk(ast.parse(source)):
        items = node.items if isinstance(node, ast.With) else ()
        if any(ast.unparse(item.context_expr).startswith("subprocess.Popen(") for item in items):
            yield node.lineno


def test_no_test_waits_for_ever_for_a_process_that_does_not_end() -> None:
    assert not places(unbounded), "use started() of tests/started.py"
    assert list(unbounded("with subprocess.Popen([]) as one:\n    pass")) == [1]


def test_the_guard_sees_every_way_to_pass_the_environment_on() -> None:
    ways = (
        "subprocess.run([])",
        "subprocess.Popen(['x'], text=True)",
        "e = {**os.environ, 'A': '1'}",
        "e = os.environ | {'A': '1'}",
        "e = os.environ.copy()",
        "e = dict(os.environ)",
        "e = {name: value for name, value in os.environ.items()}",
    )
    assert [list(inherited(way)) for way in ways] == [[1]] * len(ways)


def test_a_clean_environment_holds_home_and_path_the_tests_settings_and_what_is_asked_for() -> None:
    assert set(clean_environment(A="1")) == {"HOME", "PATH", "XDG_CONFIG_HOME", "A"}
