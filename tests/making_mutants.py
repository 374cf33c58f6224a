"""Mutants: the product with some words of a function replaced by others. The tests must notice.

An edit is (a class or module, "function: words => others"). Without an arrow, the words are done first in the function; without
words, it returns at once. What no edit can say is a function of the patch.
"""

import __future__

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent, indent
from typing import Any

import pytest

Edit = tuple[Any, str] | Callable[[pytest.MonkeyPatch], None]
Broken = dict[tuple[Any, str], dict[str, Edit | list[Edit]]]
"""By what shows it, and what is said then: by name."""


@dataclass(frozen=True)
class Mutant:
    """Something wrong: what shows it, a part of what is said then, and the edits."""

    name: str
    shown_by: Any
    seen_by: str
    edits: Edit | list[Edit]

    def breaks(self, patch: pytest.MonkeyPatch) -> None:
        """Until the test is over."""
        break_(patch, self.edits)


def mutants(broken: Broken) -> list[Mutant]:
    return [Mutant(name, *seen, edits) for seen, found in broken.items() for name, edits in found.items()]


def break_(patch: pytest.MonkeyPatch, edits: Edit | list[Edit]) -> None:
    """Until the patch is undone."""
    for edit in edits if isinstance(edits, list) else [edits]:
        if callable(edit):
            edit(patch)
        else:
            owner, text = edit
            name, _, words = text.partition(": ")
            patch.setattr(owner, name, _edited(owner, name, words or "return"))


def _edited(owner: Any, name: str, words: str) -> Any:
    found = inspect.getattr_static(owner, name)
    function = found.fget if isinstance(found, property) else found
    source = getattr(function, "source", None) or dedent(inspect.getsource(function))
    was, arrow, becomes = words.partition(" => ")
    assert not arrow or source.count(was) == 1, f"{function.__qualname__} has {source.count(was)} times {was!r}"
    source = source.replace(was, becomes) if arrow else _begun(source, words)
    within = f"def within(__class__):\n{indent(source, ' ')}\n return {function.__name__}"
    made: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag
    exec(compile(within, f"<broken {name}>", "exec", flags, dont_inherit=True), function.__globals__, made)
    broken = made["within"](owner)
    (broken.fget if isinstance(broken, property) else broken).source = source  # for the next edit
    return broken


def _begun(source: str, words: str) -> str:
    """The function with these before its first statement."""
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    lines = source.splitlines()
    at = function.body[ast.get_docstring(function) is not None and len(function.body) > 1].lineno - 1
    return "\n".join([*lines[:at], indent(words, "    "), *lines[at:]])
