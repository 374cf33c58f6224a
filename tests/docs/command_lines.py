"""Whether a command on a page can be typed: it exists, and so does each option. Nothing is run."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from code_blocks import ROOT

from benchmarks.__main__ import NAMES
from ray_snapshot import pytest_plugin
from ray_snapshot.cli import _checked, each_command, make_app

COMMANDS: dict[str, Any] = {
    " ".join(words): one for words, one in each_command(_checked(typer.main.get_command(make_app()))) if not one.hidden
}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OTHERS = {"cd", "cp", "curl", "du", "git", "mkdir", "ssh", "tar", "kubectl", "ray", "spark-submit", "pip", "python"}
"""Programs of others: only what stands behind `--` is looked at."""


def faults(line: str) -> list[str]:
    """What is wrong with this line of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split, lexer.commenters = True, "#"
    found: list[str] = []
    for words in _commands(list(lexer)):
        found += _faults([*words])
    return found


def _commands(words: list[str]) -> Iterator[list[str]]:
    one: list[str] = []
    is_file = False
    for word in words:
        if word and set(word) <= set("|&;"):
            yield one
            one = []
        elif is_file or word in ("<", ">"):  # where the input comes from and the output goes is no argument
            is_file = not is_file
        else:
            one.append(word)
    yield one


def _faults(words: list[str]) -> list[str]:
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words.pop(0)
    if not words:
        return []
    name, *arguments = words
    if name == "ray-snapshot":
        return _ours(arguments)
    if name in ("pytest", "make"):
        known = _PLUGIN if name == "pytest" else TARGETS
        asked = [word.partition("=")[0] for word in arguments if name == "make" or word.startswith("--ray-snapshot")]
        return [f"{name} knows no {word}" for word in asked if word not in known]
    if name not in OTHERS:
        return [f"{name} is no program that pages use"]
    extras = [extra for word in arguments for group in re.findall(r"\[([\w,]+)\]", word) for extra in group.split(",")]
    found = [f"there is no extra {extra}" for extra in extras if name == "pip" and extra not in EXTRAS]
    if name == "python" and arguments[:1] == ["-m"]:
        found += [f"there is no module {arguments[1]}"] if find_spec(arguments[1]) is None else []
        asked = arguments[2:] if arguments[1] == "benchmarks" else []
        found += [f"there is no benchmark {word}" for word in asked if word not in {*NAMES, "--json", "NAME", "..."}]
    if "--" in arguments:
        found += _faults(arguments[arguments.index("--") + 1 :])
    return found


_PLUGIN = set(re.findall(r'"(--ray-snapshot[\w-]*)"', Path(pytest_plugin.__file__).read_text(encoding="utf-8")))


def _grouped(words: list[str]) -> list[str]:
    """The words of a command in a group as one, without the history that stands between them."""
    if words[:1] == ["history"]:
        return [" ".join(words[:2]), *words[2:]]
    if words[:1] == ["ask"] and "--list" not in words:
        return [" ".join((words[0], *words[2:3])), *words[3:]]
    return words


def _ours(arguments: list[str]) -> list[str]:
    arguments = _grouped(arguments)
    command = arguments[0] if arguments else ""
    if command in ("--version", "--help"):
        return []
    if command not in COMMANDS:
        return [f"there is no command {command}"]
    if "--help" in arguments:
        return []
    try:
        context = COMMANDS[command].make_context(command, arguments[1:], obj="HISTORY")
        context.close()
    except Exception as error:
        return [f"{command}: {getattr(error, 'message', error)}"]
    program = context.params.get("program", ["-m"])[0]  # what stands in front of it and is no option of ours
    return [f"{command} knows no {program}"] if program.startswith("-") and program != "-m" else []


def options_in_words(text: str) -> list[str]:
    """What is wrong with commands of ours inside sentences: they may be shortened, so only names are looked at."""
    found = []
    for words in re.findall(r"`ray-snapshot ([^`]+)`", text):
        command, *others = _grouped(words.replace("|", " ").split())
        if command not in COMMANDS:
            others_known = ("COMMAND", "--version", "--install-completion", "history,", "is")
            found += [] if command in others_known else [f"there is no command {command}"]
            continue
        known = {name for one in COMMANDS[command].params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
        asked = [word.strip("[]()") for word in others]
        if command not in ("run", "restore"):  # behind the program stand its own
            found += [f"{command} knows no {word}" for word in asked if word.startswith("--") and word not in known]
    return found
