"""The command `ray-snapshot`: parse, call one function, print.

Each command lives in a module of `ray_snapshot.commands` with a function `register(app)`; they import what is
heavy inside their functions, so that `--help` and mistakes are answered at once. A fault of the user's is one
line on stderr and exit code 2; a traceback is a bug of ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from ray_snapshot import __version__
from ray_snapshot.errors import RaySnapshotError

_COMMANDS = ("demo", "run", "restore", "system", "history", "analyze", "synth", "simulate", "witness")
_USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

CUT_OFF = 1
FAULT = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0, or what the command says; 2: an error, 130: Ctrl-C)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = make_app()(arguments, prog_name="ray-snapshot", standalone_mode=False)
        sys.stdout.flush()
    except RaySnapshotError as error:
        return _complain(str(error))
    except _USAGE_ERROR as error:  # type: ignore[misc]
        return _complain(_usage(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # whoever read us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CUT_OFF
    return code if isinstance(code, int) else 0


def make_app() -> typer.Typer:
    """The application with every command."""
    app = typer.Typer(
        name="ray-snapshot",
        help="Consistent global snapshots of running Ray actor systems: take them, keep them, question them.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    for name in _COMMANDS:
        import_module(f"ray_snapshot.commands.{name}").register(app)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ray-snapshot {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Takes the options that stand before the command."""


def _complain(message: str) -> int:
    print(f"ray-snapshot: error: {' '.join(message.split())}", file=sys.stderr)
    return FAULT


def _usage(error: Exception) -> str:
    message = str(error.format_message())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "ray-snapshot"
    return f"{message} (see '{command} --help')"


if __name__ == "__main__":
    sys.exit(main())
