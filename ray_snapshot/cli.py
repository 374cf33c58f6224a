"""The command `ray-snapshot`: parse, call one function, print.

Each command lives in a module of `ray_snapshot.commands` with a function `register(app)`; they import what is
heavy inside their functions, so that `--help` and mistakes are answered at once. A fault of the user's is one
line on stderr and exit code 2. A fault of ours, an error that we did not foresee, is one line, too, and exit code 70.
"""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer

from ray_snapshot import __version__, streams
from ray_snapshot.errors import RaySnapshotError, SettingError
from ray_snapshot.streams import Shown, StreamError
from ray_snapshot.views.tables import one_line
from ray_snapshot.wrapping import print_text

_COMMANDS = (
    "demo", "run", "restore", "system", "top", "history", "questions", "report", "serve", "analyze", "simulate", "explore",
    "witness", "blame", "doctor",
)  # fmt: skip
_USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

_SECONDS = ("every", "timeout")
_MOST_SECONDS = 1e8
"""Three years; more than the operating system's longest wait would overflow."""
_LONGEST_LINE = 4_000
_WIDEST_HELP = 10_000
"""Columns: `--help` takes the terminal's width, and not the 80 at most that click gives it."""

FAULT = 2
OURS = 70
"""A fault of ours: what `sysexits.h` calls EX_SOFTWARE."""
INTERRUPTED = 130
CUT_OFF = 1
"""The reader of our output has gone: what Python's own documentation does then."""

DEBUG = "RAY_SNAPSHOT_DEBUG"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0, or what the command says; see `commands.exit_codes`)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    sys.stdout, sys.stderr = Shown(sys.stdout), Shown(sys.stderr)
    try:
        return _run(arguments)
    finally:
        streams.give_back()


def _run(arguments: list[str]) -> int:
    """The one place where whatever happens in a command becomes an exit code and at most one line."""
    try:
        if any("\0" in argument for argument in arguments):
            raise SettingError("an argument contains a NUL character, which no name or path has")
        app = make_app(*arguments)
        code = _checked(typer.main.get_command(app))(arguments, prog_name="ray-snapshot", standalone_mode=False)
        if isinstance(sys.stdout, Shown):  # else they are those of a program that was run
            sys.stdout.flush()
    except RaySnapshotError as error:
        return _complain(str(error))
    except _USAGE_ERROR as error:  # type: ignore[misc]
        return _complain(_usage(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except StreamError as error:
        return _stream_gone(error)
    except OSError as error:
        return _complain(_told(error))
    except Exception as error:
        return _fault_of_ours(error)
    return code if isinstance(code, int) else 0


def _stream_gone(error: StreamError) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, Shown):
            stream.discard_if_broken()
    if isinstance(error.__cause__, BrokenPipeError):  # the reader has seen enough
        return CUT_OFF
    return _complain(f"standard output cannot be written: {getattr(error.__cause__, 'strerror', error.__cause__)}")


def _fault_of_ours(error: Exception) -> int:
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    _complain(
        f"this is a fault of ray-snapshot: {type(error).__name__}: {str(error)[:300]}; please report it, with what {DEBUG}=1"
        " in the environment prints"
    )
    return OURS


def _told(error: OSError) -> str:
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror or error}"


def make_app(*arguments: str) -> typer.Typer:
    """The application with every command; with the one that the arguments name alone: to build all takes many times as long."""
    from ray_snapshot.commands.exit_codes import OF_EVERY, epilog, said

    app = typer.Typer(
        name="ray-snapshot",
        help="Consistent global snapshots of running Ray actor systems: take them, keep them, question them.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"max_content_width": _WIDEST_HELP},
        epilog=f"Exit codes of every command, beside its own: {said(OF_EVERY)}.",
    )
    app.callback()(_options)
    for name in _COMMANDS:
        register = import_module(f"ray_snapshot.commands.{name}").register
        register(app, arguments) if name == "analyze" else register(app)
    only = arguments[0] if arguments else None
    commands = [one for one in app.registered_commands if _name_of(one) == only]
    groups = [one for one in app.registered_groups if one.name == only]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups
    made = (group.typer_instance for group in app.registered_groups)
    of_groups = (one for group in made if group is not None for one in group.registered_commands)
    for one in (*app.registered_commands, *of_groups):
        one.epilog = epilog(_name_of(one))
    return app


def _name_of(command: Any) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


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


def each_command(group: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, by the words that are typed for it; of a group those in it."""
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from each_command(one, *words, name)
        else:
            yield (*words, name), one


def _checked(command: Any) -> Any:
    """The command with numbers checked that are none: infinite, or more seconds than a clock can count."""
    for _, one in each_command(command):
        for option in one.params:
            option.callback = option.callback or _check_number
    return command


def _check_number(_: Any, option: Any, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no number that can be used here")
    if isinstance(value, float) and option.name in _SECONDS and value > _MOST_SECONDS:
        raise typer.BadParameter(f"{value:g} seconds are too many: at most {_MOST_SECONDS:g}")
    return value


def _complain(message: str) -> int:
    line = one_line(" ".join(message[:_LONGEST_LINE].split()))
    with suppress(StreamError, OSError, AttributeError):
        print_text(f"ray-snapshot: error: {line}", is_error=True)
    if isinstance(sys.stderr, Shown):
        sys.stderr.discard_if_broken()
    return FAULT


def _usage(error: Exception) -> str:
    message = str(error.format_message())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "ray-snapshot"
    return f"{message} (see '{command} --help')"


if __name__ == "__main__":
    sys.exit(main())
