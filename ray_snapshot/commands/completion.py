"""`ray-snapshot completion SHELL`: what makes a shell complete commands, options and their values.

The script that it prints asks `ray-snapshot` itself at each Tab, with a variable in the environment; typer answers. Only the
command at hand is built then, and nothing heavy is imported: a person waits for it.
"""

from __future__ import annotations

import inspect
import os
from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("completion")(completion)


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Your shell.", show_default=False)],
) -> None:
    """Print the script with which a shell completes our commands.

    \b
    Put one line into the shell's own file:
      ~/.bashrc                   eval "$(ray-snapshot completion bash)"
      ~/.zshrc, behind compinit   eval "$(ray-snapshot completion zsh)"
      ~/.config/fish/config.fish  ray-snapshot completion fish | source
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined] # as typer's own command has it

    from ray_snapshot.cli import COMPLETING

    print(get_completion_script(prog_name="ray-snapshot", complete_var=COMPLETING, shell=shell))


def prepare() -> str | None:
    """Make typer answer in the way of our scripts; returns the word behind `ray-snapshot`, which may be a command."""
    from typer.completion import completion_init  # type: ignore[attr-defined] # as `add_completion=True` does

    completion_init()
    words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
    return words[1] if len(words) > 1 else None


def without_options(app: typer.Typer) -> None:
    """Leave of every command its name and help: to build them whole takes many times as long."""
    for one in app.registered_commands:
        one.name = one.name or getattr(one.callback, "__name__", None)
        one.help = one.help or inspect.getdoc(one.callback)
        one.callback = lambda: None
