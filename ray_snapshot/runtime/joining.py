"""A system of machines that is opened in a program whose actors are watched joins that watch: one cut, one verdict, one run.

What is watched says so here (`WATCHES`); this file decides whether a system can join, and says why where it cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ray_snapshot.errors import SettingError
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.choosing import BARRIERS
from ray_snapshot.runtime.settings import Settings
from ray_snapshot.stderr import LOGGER

WATCHES: list[Any] = []
"""The watch of this program, if it is watched (`instrument.watching.Watch`)."""


_ONE_COLOUR = "a process has one colour there, and under barriers each machine has its own"


def to_join(name: str, settings: Settings, history: str | None) -> Any:
    """The watch that a new system joins; None if there is none, or if it stays apart: then that is said.

    Raises `SettingError` under barriers where the program itself has called `rs.watch`.
    """
    if not WATCHES:
        return None
    watch = WATCHES[0]
    if settings.protocol in BARRIERS and watch.is_asked_for:
        raise SettingError(
            f"System(protocol={settings.protocol!r}) beside rs.watch(): {_ONE_COLOUR}; use another protocol"
        )
    reason = _why_apart(watch, settings, history)
    if reason is None:
        return watch
    say_apart(name, reason)
    return None


def say_apart(name: str, reason: str) -> None:
    """Say why a system and the actors beside it stay apart."""
    LOGGER.warning(f"ray-snapshot: the system {name} and the actors beside it are not one system: {reason}")


def _why_apart(watch: Any, settings: Settings, history: str | None) -> str | None:
    """Why a system cannot join a watch; None if it can."""
    if settings.protocol in BARRIERS:
        return f"it is under {settings.protocol}: {_ONE_COLOUR}"
    if watch.joined is not None:
        return "another system of this program has joined the watch already"
    if settings.recover is not None or watch.settings.recover is not None:
        return "recover= is for machines alone, or for actors alone"
    if settings.checkpoint and not watch.is_checkpointing:
        return "it keeps checkpoints, and they do not: rs.watch(checkpoint=True)"
    if settings.trace:
        return "trace=True logs machines only"
    if history is not None and history != watch.history:
        return f"its history is {history}, and theirs is {watch.history or 'none'}: give both the same"
    return None


def names_to_try(name: str) -> Iterator[str]:
    """What a system that is its own may be called on the cluster: its name, unless `ray-snapshot run` has taken that for us.

    Only who looks from outside (`ray-snapshot systems`) meets another name; the program and its history do not.
    """
    yield name
    if not WATCHES or WATCHES[0].name != name or WATCHES[0].is_asked_for:
        return
    for number in range(2, LIMITS.namesakes):
        LOGGER.warning(f"ray-snapshot: from outside the system {name} is called {name}-{number}")
        yield f"{name}-{number}"
