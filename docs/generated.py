"""What the reference takes from the code, as Markdown, below `<!-- generated: NAME -->` on a page.

`python docs/generated.py`, and so `make docs`, writes it there. What only Sphinx can show (`api`) is put in when the site is
built.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import typer

DOCS = Path(__file__).parent
MARK = re.compile(r"^<!-- generated: ([a-z-]+) -->$(?:.*?^<!-- end of \1 -->$)?", re.MULTILINE | re.DOTALL)
API = re.compile(r"^<!-- generated: api (\S+) -->$", re.MULTILINE)


def written(text: str) -> str:
    """A page as it is kept."""
    return MARK.sub(
        lambda mark: f"<!-- generated: {mark[1]} -->\n\n{MAKERS[mark[1]]()}\n\n<!-- end of {mark[1]} -->", text
    )


def filled(text: str) -> str:
    """A page as Sphinx gets it."""
    return API.sub(lambda mark: api(mark[1]), text)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *(tuple(cell.replace("|", r"\|") for cell in row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def one_line(text: str | None) -> str:
    return " ".join((text or "").split())


# ---- the command line -----------------------------------------------------------------------------------------------


def commands() -> dict[str, Any]:
    """The commands that are listed, by what is typed, in the order of their exit codes."""
    from ray_snapshot.cli import each_command, make_app
    from ray_snapshot.commands.exit_codes import OF

    found = {
        words[-1]: (" ".join(words), one)
        for words, one in each_command(typer.main.get_command(make_app()))
        if not one.hidden
    }
    return dict(found[name] for name in OF)


def exit_codes() -> str:
    """One row a command."""
    from ray_snapshot.commands.exit_codes import OF, OF_EVERY

    def own(codes: dict[int, str]) -> str:
        return "; ".join(f"{code}: {text}" for code, text in codes.items() if code)

    rows = [
        (f"[`{words}`](#{words.replace(' ', '-')})", codes[0], own(codes))
        for words, codes in zip(commands(), OF.values(), strict=True)
    ]
    every = [(str(code), text) for code, text in OF_EVERY.items()]
    return (
        table(("command", "0", "another code of its own"), rows)
        + "\n\nOf every command:\n\n"
        + table(("code", ""), every)
    )


def command_line() -> str:
    """A section a command, with all it takes."""
    return "\n\n".join(_command(name, command) for name, command in commands().items())


def _command(name: str, command: Any) -> str:
    from ray_snapshot.commands.exit_codes import OF, said

    context = typer.Context(command, info_name=f"ray-snapshot {name.replace('ask ', 'ask HISTORY ')}")
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    parts = [f"## {name}", _help(command.help), f"```text\n{usage}\n```"]
    records = [one.get_help_record(context) for one in command.params]
    rows = [(f"`{called}`", one_line(told).replace("*", r"\*")) for called, told in filter(None, records)]
    if rows:
        parts.append(table(("argument or option", ""), rows))
    return "\n\n".join([*parts, f"Exit codes: {said(OF[name.rsplit(maxsplit=1)[-1]])}."])


def _help(text: str | None) -> str:
    """The words of a help text; what stands behind `\\b` there is kept line by line."""
    found = []
    for block in inspect.cleandoc(text or "").split("\n\n"):
        if block.startswith("\b"):
            head, *lines = block.removeprefix("\b\n").splitlines()
            found.append(f"{head}\n\n```text\n" + textwrap.dedent("\n".join(lines)) + "\n```")
        else:
            found.append(one_line(block).replace("*", r"\*"))
    return "\n\n".join(found)


# ---- settings, errors, tables ---------------------------------------------------------------------------------------


def settings() -> str:
    """A section a setting."""
    from ray_snapshot.runtime.settings import Settings, SettingsGiven, WatchSettingsGiven

    notes = dict(attribute_docstrings(Settings))
    takers = {"`System`": SettingsGiven, "`watch`, `install`": WatchSettingsGiven}
    parts = []
    for name, field in Settings.model_fields.items():
        of = ", ".join(taker for taker, given in takers.items() if name in given.__annotations__)
        parts += [f"## {name}", f"*{_kind(field.annotation)}, default `{field.default!r}`; {of}*", _linked(notes[name])]
    return "\n\n".join(parts)


def _kind(annotation: Any) -> str:
    """A type, in words."""
    given = get_args(annotation)
    if not given:
        return "anything" if annotation is Any else f"`{annotation.__name__}`"
    if isinstance(given[0], str):
        return " or ".join(f"`{one!r}`" for one in given)
    return " or ".join("`None`" if one is type(None) else _kind(one) for one in given)


def _linked(text: str) -> str:
    """Words of a docstring, with pages as links, by their titles."""

    def link(page: re.Match[str]) -> str:
        title = (DOCS / page[1]).read_text("utf-8").removeprefix("# ").partition("\n")[0]
        return f"[{title}](../{page[1]})"

    return re.sub(r"docs/([\w/-]+\.md)", link, one_line(text))


def _class_body(kind: type) -> list[ast.stmt]:
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(found, ast.ClassDef)
    return found.body


def attribute_docstrings(kind: type) -> Iterator[tuple[str, str]]:
    """Each field of a class with the docstring below it."""
    body = _class_body(kind)
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            yield field.target.id, str(getattr(below.value, "value", ""))


def errors() -> str:
    """One row an error, in the order of the file."""
    from ray_snapshot import errors as module

    kinds = [kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__]
    rows = [
        (f"`{kind.__name__}`", ", ".join(f"`{base.__name__}`" for base in kind.__bases__), one_line(kind.__doc__))
        for kind in kinds
    ]
    return table(("error", "is a", ""), rows)


def tables() -> str:
    """A section a table, its columns in their order."""
    from meanings import ROWS, meaning_of

    from ray_snapshot.schema import DEFAULTS, TABLES

    parts = []
    for name, schema in TABLES.items():
        rows = [
            (
                f"`{field.name}`",
                f"{field.type}",
                f"`{DEFAULTS[name][field.name]}`" if field.name in DEFAULTS.get(name, {}) else "",
                meaning_of(name, field.name),
            )
            for field in schema
        ]
        head = ("column", "type", "if left out", "meaning")
        parts += [f"## {name}", f"One row is {ROWS[name]}.", table(head, rows)]
    return "\n\n".join(parts)


# ---- the API --------------------------------------------------------------------------------------------------------

RESULTS = {
    "ray_snapshot": (
        "ray_snapshot.instrument.watching.Watch",
        "ray_snapshot.runtime.handles.MethodSender",
        "ray_snapshot.snapshot.Machine",
        "ray_snapshot.snapshot.Channel",
        "ray_snapshot.snapshot.Message",
    )
}
"""What public functions return or hold, and nobody makes by name."""


MODULES = (
    "ray_snapshot.detectors",
    "ray_snapshot.history",
    "ray_snapshot.questions",
    "ray_snapshot.pipelines",
    "ray_snapshot.testing",
)
"""What else is public."""


def public(module: str) -> list[str]:
    """The public names of a module: its `__all__`, and of the package itself what it loads when it is asked."""
    found = import_module(module)
    if module != "ray_snapshot":
        return list(found.__all__)
    return [name for name, where in found._WHERE.items() if where not in MODULES]


def api(module: str) -> str:
    """What is public there, from its docstrings."""
    found = import_module(module)
    parts = [f"{module}.{name}" for name in public(module) if name != "Settings"]
    parts += RESULTS.get(module, ())
    shown = []
    for name in parts:
        where, _, last = name.rpartition(".")
        item = getattr(import_module(where), last)
        kind = "class" if inspect.isclass(item) else "function"
        options = "   :members:\n   :inherited-members: " + _NOT_INHERITED if kind == "class" else ""
        if is_dataclass(item):  # whose fields are columns, which have their meaning there
            options += "\n   :undoc-members:"
        shown.append(f"```{{eval-rst}}\n.. auto{kind}:: {name}\n{options}\n```")
    return "\n\n".join([one_paragraph(found.__doc__), *shown])


_NOT_INHERITED = "BaseModel,dict,list,tuple,Mapping,Exception,Generic,Protocol,ABC"


def one_paragraph(text: str | None) -> str:
    return one_line(inspect.cleandoc(text or "").split("\n\n")[0])


_HIDDEN = re.compile(
    r"model_.*|claims|roll_back|is_to_be_restored|is_checkpointing|raiser|joined|summary|type|shapes|at_rest|ours"
)


def is_skipped(app: Any, what: str, name: str, item: Any, skip: bool, options: Any) -> bool | None:
    """Whether autodoc leaves a member out: what pydantic brings, and what is for our own parts."""
    del app, what, options, item
    return True if _HIDDEN.fullmatch(name) else (skip or None)


MAKERS: dict[str, Callable[..., str]] = {
    "exit-codes": exit_codes,
    "command-line": command_line,
    "settings": settings,
    "errors": errors,
    "tables": tables,
}


if __name__ == "__main__":
    for page in DOCS.rglob("*.md"):
        page.write_text(written(page.read_text("utf-8")), "utf-8")
