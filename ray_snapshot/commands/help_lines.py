"""`--help` in lines that are not broken at a hyphen: `ray-snapshot`, `--on-deadlock` and ids stay whole.

click breaks there, and lets nobody choose; but a context says which formatter it wants. typer brings a click of its own, so
both are found by what typer shows of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer

_CONTEXT: Any = next(kind for kind in typer.Context.__mro__ if "formatter_class" in vars(kind))

_WHOLE = "\ue000"
"""Stands for a hyphen while lines are broken: of the same width, and in no text of ours."""


class _Formatter(_CONTEXT.formatter_class):  # type: ignore[misc]
    """click's, but for hyphens."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(_held(prog), _held(args), prefix)

    def write_text(self, text: str) -> None:
        super().write_text(_held(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], *args: Any, **kwargs: Any) -> None:
        super().write_dl([(_held(name), _held(text)) for name, text in rows], *args, **kwargs)

    def getvalue(self) -> str:
        return str(super().getvalue()).replace(_WHOLE, "-")


class _Context(_CONTEXT):  # type: ignore[misc]
    formatter_class = _Formatter


def _held(text: str) -> str:
    return text.replace("-", _WHOLE)


def keep_hyphens(*commands: Any) -> None:
    """Of these commands of typer's no help is broken at a hyphen."""
    for one in commands:
        one.context_class = _Context
