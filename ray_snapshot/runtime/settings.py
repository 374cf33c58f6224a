"""What a system can be told, and what is refused before anything happens."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from ray import cloudpickle

from ray_snapshot import redaction
from ray_snapshot.addresses import absolute, is_address, parse
from ray_snapshot.alarms import check_target
from ray_snapshot.errors import (
    DetectorError,
    HistoryWriteError,
    SettingError,
)
from ray_snapshot.names import OnDeadlock
from ray_snapshot.pace import Every, every_of
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.verdicts import Detector, ReadyMade, check_detector

_ALIGNING = ("aligned-barrier", "unaligned-barrier")
"""Protocols to which `alignment_timeout` belongs."""


Protocols = Literal["chandy-lamport", "observer", "aligned-barrier", "unaligned-barrier", "at-least-once-barrier"]


OF_WATCHES = ("on_deadlock", "deadlock_grace", "victim")
"""Settings of apps that are watched, which machines of one's own have no use for."""


class Settings(BaseModel):
    """What a system can be told, beside `history`, `detectors` and `address`; seconds everywhere."""

    model_config = ConfigDict(extra="forbid")

    protocol: Protocols = "chandy-lamport"
    """How snapshots are taken; docs/howto/protocols.md says what each assumes and costs."""
    alignment_timeout: float | None = Field(None, gt=0)
    """After which machines turn unaligned for a snapshot under `aligned-barrier` (default: half of its timeout); with
    `unaligned-barrier`, begin aligned and turn unaligned after it (default: unaligned at once). At most a quarter of
    `send_timeout`: inputs that are blocked must not hold a sender that long."""
    every: Every | None = None
    """Seconds between snapshots, from `start()` on; or a share of processor time that they may take, like `"1%"`: then they
    come as often as that allows, see docs/howto/overhead.md; None: only those that are asked for."""
    mailbox_bound: int = Field(10_000, ge=1)
    """Messages that a channel may have sent and not seen accepted before its sender is held back."""
    send_timeout: float = Field(60.0, gt=0)
    """How long a sender is held at a full mailbox before that is an error."""
    spawn_timeout: float = Field(30.0, gt=0)
    """How long a message, or a call, to a name waits for the machine of that name to be spawned."""
    start_timeout: float = Field(120.0, gt=0)
    """How long hosts and services may take to start."""
    snapshot_timeout: float = Field(30.0, gt=0)
    """After which a snapshot is given up; at half of it, machines in a long action are recorded without their state."""
    most_open: int = Field(8, ge=1)
    """Snapshots that may be pending at once; past it the clock skips, and `snapshot()` waits. While so many wait for their
    verdicts the clock skips, too; `snapshot()` does not wait for verdicts, until 100 of them are due."""
    library_states: bool = False
    """Whether the states of actors of Ray's own libraries (Serve, Data, Tune, `ray.util`) are recorded, in an app that is
    watched; their waits are followed either way."""
    on_deadlock: OnDeadlock = "report"
    """What to do about a deadlock of an app that is watched, when it has stood for `deadlock_grace` and nothing that acts could
    break it: only the verdict, `DeadlockError` out of what the program waits for, or the program's end with exit code 3."""
    deadlock_grace: float = Field(10.0, ge=0)
    """So many seconds a deadlock must have stood before `on_deadlock` does anything."""
    victim: Literal["youngest"] | None = None
    """With `on_deadlock="raise"`: "youngest" raises the error inside the call of the deadlock that began last, not in the
    program's own waits."""
    on_alarm: str | None = None
    """Tell each alarm, when it begins and when it ends: a command line, which gets the report on its standard input, or an
    address (https://...), to which it is posted as JSON."""
    history_is_shared: bool = False
    """Whether the folder of the history is the same on every node, like one of a network file system: without that, a folder
    is refused on a cluster of several computers (an address of an object store never is)."""
    trace: bool = False
    """Whether every action is logged in the history, for `ray-snapshot witness`."""
    checkpoint: bool = False
    """Whether to keep with every snapshot what a restore needs: states, messages and classes, in binary."""
    recover: Literal["rollback"] | None = None
    """What to do when a host dies: roll everything back to the last snapshot that can be restored and go on
    (with `checkpoint`), or stop with `HostDiedError`."""
    most_failures: int = Field(5, ge=0)
    """So many hosts (or services) may die within `failures_within` seconds; then the system gives up."""
    failures_within: float = Field(60.0, gt=0)
    """The seconds in which `most_failures` are counted."""
    grace: float = Field(10.0, ge=0)
    """When the driver or a host gets SIGTERM, a last snapshot may take so long before it ends; 0: none is taken."""

    @field_validator("every", mode="before")
    @classmethod
    def _seconds_or_a_share(cls, given: Any) -> Any:
        return None if given is None else every_of(given)


class SettingsGiven(TypedDict, total=False):
    """The fields of `Settings`, for type checkers: what `rs.System(...)` takes by keyword."""

    protocol: Protocols
    alignment_timeout: float | None
    every: Every | None
    mailbox_bound: int
    send_timeout: float
    spawn_timeout: float
    start_timeout: float
    snapshot_timeout: float
    most_open: int
    library_states: bool
    on_alarm: str | None
    history_is_shared: bool
    trace: bool
    checkpoint: bool
    recover: Literal["rollback"] | None
    most_failures: int
    failures_within: float
    grace: float


class WatchSettingsGiven(TypedDict, total=False):
    """The fields of `Settings` that `rs.watch(...)` and `rs.install(...)` take."""

    every: Every | None
    start_timeout: float
    snapshot_timeout: float
    most_open: int
    library_states: bool
    on_deadlock: OnDeadlock
    deadlock_grace: float
    victim: Literal["youngest"] | None
    on_alarm: str | None
    history_is_shared: bool
    checkpoint: bool
    recover: Literal["rollback"] | None
    most_failures: int
    failures_within: float


def check_writable(history: str | os.PathLike[str]) -> None:
    """Raise `HistoryWriteError` if a history cannot be kept there; nothing is left behind.

    If a folder is not there yet, the one that it will be made in is looked at.
    """
    if is_address(history):
        _check_store(history)
        return
    folder = Path(absolute(history, HistoryWriteError))
    there = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise HistoryWriteError(
            f"a history cannot be kept in {folder}: nothing can be written to {there} ({error.strerror}); choose another"
            " folder",
            path=str(folder),
        ) from None


def _check_store(history: str | os.PathLike[str]) -> None:
    from ray_snapshot.history import objects

    place = parse(history, HistoryWriteError)
    try:
        objects.check_writable(place)
    except OSError as error:
        raise HistoryWriteError(f"a history cannot be kept at {place}: {error}", path=str(place)) from None


def refuse_redaction(what: str) -> None:
    """Raise `SettingError` if something is to be redacted: for `what` keeps checkpoints."""
    for name in redaction.names()[:1]:
        raise SettingError(
            f"{what}(checkpoint=True) after rs.redact({name!r}): a checkpoint holds states whole, so what is redacted would be"
            " stored: leave one of the two out"
        )


def host_options(resources: dict[str, float] | None) -> dict[str, Any]:
    """What Ray is asked for a host; raises `SettingError`."""
    # Arrow comes with it, and an app that is watched has no hosts
    from ray_snapshot.runtime.host.actor import HostActor

    asked = dict(resources or {})
    options = {"num_cpus": asked.pop("CPU", 0), "num_gpus": asked.pop("GPU", 0), "resources": asked}
    try:
        HostActor.options(**options)
    except (ValueError, TypeError) as error:
        raise SettingError(f"resources={resources!r}: {first_line(error)}") from None
    return options


def arguments(item: Any) -> tuple[Any, ...]:
    return item if isinstance(item, tuple) else tuple(item) if isinstance(item, list) else (item,)


def seconds_of(where: str, timeout: Any) -> float:
    """A timeout that the program gave; raises `SettingError` if it is no number."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise SettingError(f"{where}(timeout={timeout!r}): it is a number of seconds")
    return timeout


def _unknown_setting(name: str, value: Any) -> SettingError:
    known = sorted([*Settings.model_fields, "history", "detectors", "address"])
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}? " if close else ""
    return SettingError(f"System(): {name}: no such setting (got {value!r}); {hint}there are {', '.join(known)}")


def settings_of(given: dict[str, Any]) -> Settings:
    try:
        return _fitting(Settings(**given))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            raise _unknown_setting(str(first["loc"][0]), first["input"]) from None
        raise SettingError(
            f"System(): {'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r})"
        ) from None


def _fitting(found: Settings) -> Settings:
    """These settings; raises `SettingError` for one that the protocol has no use for."""
    if found.alignment_timeout is not None and found.protocol not in _ALIGNING:
        raise SettingError(
            f"System(): alignment_timeout: it belongs to protocol {' and '.join(_ALIGNING)}; {found.protocol} does not align"
            f" so (got {found.alignment_timeout!r}): leave it out, or choose one of these"
        )
    if found.on_alarm is not None:
        check_target("on_alarm", found.on_alarm)
    if found.victim is not None and found.on_deadlock != "raise":
        raise SettingError(f'victim={found.victim!r}: it belongs to on_deadlock="raise" (got {found.on_deadlock!r})')
    return found


def detectors_of(given: Any) -> list[Detector]:
    if given is None:
        return [ReadyMade("termination"), ReadyMade("deadlock")]
    if isinstance(given, str) or hasattr(given, "evaluate") or not isinstance(given, Iterable):
        text = repr(given) if isinstance(given, str) or not hasattr(given, "name") else str(given.name)
        raise DetectorError(f"detectors= takes a list: detectors=[...] around {text}", detector=text)
    found = [check_detector(item) for item in given]
    for item in found:
        portable(item)
    names = [item.name for item in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DetectorError(f"two detectors are named {twice!r}: give them different names", detector=twice)
    return found


def portable(item: Detector) -> bytes:
    """The detector, pickled: it is evaluated in another process; raises `DetectorError`."""
    try:
        pickled: bytes = cloudpickle.dumps(item)
    except Exception as error:
        raise DetectorError(
            f"detector {item.name!r} cannot be pickled ({type(error).__name__}: {first_line(error)}), but it runs in a process"
            " of its own: keep locks, files and connections out of it",
            detector=item.name,
        ) from error
    return pickled


def spec_of(item: Detector) -> Any:
    return getattr(item, "spec", None)
