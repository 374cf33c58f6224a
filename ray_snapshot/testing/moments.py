"""A checkpoint of a running system as the beginning of runs without Ray.

By the theorem, a consistent snapshot is a state that the system could have been in: machines, the string of messages in each
channel, timers. So what can happen from there is what the space of states has behind it. A `Moment` is a `build` function: it
puts in what a `ray-snapshot restore` would load (`Front.restore`), and machines take their states back by the same hook.

A checkpoint is a pickle. It is read under the rules of a restore: nothing of it is opened before the key has been checked
(`history.checkpoints`). Imports Ray only where a pickle names it.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from platform import python_version
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import NotRestorableError, SettingError
from ray_snapshot.names import is_actor, run_of_machines
from ray_snapshot.runtime import handles
from ray_snapshot.runtime.handles import MachineHandle, handle_of
from ray_snapshot.runtime.mixin import SnapshotMixin
from ray_snapshot.runtime.planning import gathered
from ray_snapshot.testing.acts import LOAD, Sent
from ray_snapshot.testing.stage import RUN, Stage
from ray_snapshot.testing.values import Encoded, encoded

if TYPE_CHECKING:
    import os

    from ray_snapshot.history.checkpoints import Checkpoint
    from ray_snapshot.runtime.planning import Whole
    from ray_snapshot.snapshot import Snapshot
    from ray_snapshot.testing.front import Front


@dataclass(frozen=True, slots=True)
class Held:
    """A machine as a snapshot holds it."""

    name: str
    kind: type
    state: Any
    """What `snapshot_state` gave; handles in it are of machines of a system without Ray."""
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class Flying:
    """A message in flight, or a pending timer."""

    source: str
    target: str
    method: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    kind: str = "mail"
    left: float = 0.0
    """Of a timer: the seconds until it fires."""


@dataclass(frozen=True, slots=True)
class Unmade:
    """A machine whose creation is in flight."""

    creator: str
    name: str
    kind: type
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


class Moment:
    """One moment of a system; a `build` for `testing.explore`, `simulate` and `replay`.

    Called with a system in a `build` of your own, it puts the moment in; what the program does then comes behind it.
    """

    def __init__(
        self,
        name: str,
        machines: Iterable[Held],
        flying: Iterable[Flying] = (),
        unmade: Iterable[Unmade] = (),
        *,
        at: float = 0.0,
    ) -> None:
        self.__name__ = name
        self.machines = tuple(sorted(machines, key=lambda held: held.name))
        self.flying = tuple(flying)
        """What is in flight, the messages of a channel in their order."""
        self.unmade = tuple(unmade)
        self.at = at
        """When it was, in seconds since 1970: what `self.now()` begins with."""

    def __call__(self, system: Front) -> None:
        """Put it into a system that is being built."""
        system.restore(self)

    def __repr__(self) -> str:
        return f"<{self.__name__}: {len(self.machines)} machines, {len(self.flying)} messages and timers in flight>"

    def outputs(self, stage: Stage) -> Iterator[Sent]:
        """What the program does to the world that it begins with; raises `SettingError` for a class that is no machine's."""
        stage.began_at = self.at
        for held in self.machines:
            yield _gathering("create", held.name, LOAD, encoded(((held.state,), {})), kind=stage.kind_of(held.kind))
        for one in self.unmade:
            arguments, kind = encoded((one.args, one.kwargs)), stage.kind_of(one.kind)
            yield _gathering("create", one.name, "__init__", arguments, kind=kind, source=one.creator)
        for sent in self.flying:
            arguments = encoded((sent.args, sent.kwargs))
            yield _gathering(sent.kind, sent.target, sent.method, arguments, source=sent.source, seconds=sent.left)
        for held in self.machines:
            if held.is_stopped:
                yield Sent("stop", held.name, source=held.name)


def _gathering(what: str, target: str, method: str, given: Encoded, **more: Any) -> Sent:
    return Sent(what, target, method, given.data, refs=given.refs, **more)


# ---- from a history -----------------------------------------------------------------------------------------------------


def from_snapshot(
    history: str | os.PathLike[str], snapshot_id: str, *, classes: Mapping[str, Any] | Sequence[Any] = ()
) -> Moment:
    """A snapshot with a checkpoint, as a `build`: what `testing.explore`, `simulate` and `replay` begin from.

    `snapshot_id`: an id, its beginning, `latest`, `-1`, ... `classes`: machine classes to take in place of recorded ones of
    the same name, such as those of a script that has been mended; or by name. Others come as a restore gets them: by their
    module, or, of a script that was run, as they were recorded.

    What `system.connect` declared is not in a checkpoint, but in the program: declare it again in a `build` that calls
    this one first. Raises `NotRestorableError` (obstacles, watched actors, classes that are not here), `CheckpointError` (the
    key), `HistoryNotFoundError`.
    """
    from ray_snapshot.history import History, checkpoints, restorable

    opened = History(history)
    found = opened.load(opened.resolve(snapshot_id))
    restorable.check(opened, found)
    checkpoint = checkpoints.read(opened.path, found.snapshot_id, checkpoints.checkpoint_key(is_made=False))
    return opened_moment(checkpoint, found, classes_by_name(classes))


def classes_by_name(classes: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Machine classes by the names of those whose place they take; raises `SettingError` for what is none."""
    pairs = classes.items() if isinstance(classes, Mapping) else ((None, kind) for kind in classes)
    found = {}
    for name, given in pairs:
        kind = getattr(given, "machine_class", given)
        if not isinstance(kind, type) or not issubclass(kind, SnapshotMixin):
            raise SettingError(f"{given!r} is no class of machines: it does not extend rs.SnapshotMixin")
        found[name or kind.__name__] = kind
    return found


def opened_moment(checkpoint: Checkpoint, snapshot: Snapshot, classes: Mapping[str, Any]) -> Moment:
    """The moment of a checkpoint whose digest has been checked."""
    _refuse_actors(checkpoint)
    reader = _Reader(checkpoint, snapshot)
    whole = gathered(checkpoint.of_hosts)
    kinds = {key: reader.machine_class(key, blob, whole, classes) for key, blob in whole.classes.items()}
    machines = [
        Held(name, kinds[key], reader.value(blob, f"the state of {name}"), is_stopped)
        for name, key, blob, is_stopped in whole.machines
    ]
    flying = [
        Flying(source, target, method, *reader.arguments(saved, f"{source} -> {target}.{method}"), kind, left)
        for source, target, kind, _, method, saved, left, _ in sorted(whole.messages, key=lambda message: message[3])
    ]
    unmade = [
        Unmade(creator, child, kinds[key], *reader.arguments(saved, f"the creation of {child}"))
        for creator, child, key, saved, _ in whole.creations
    ]
    return Moment(f"snapshot {snapshot.snapshot_id}", machines, flying, unmade, at=_moment_of(snapshot))


def _moment_of(snapshot: Snapshot) -> float:
    """When the last machine was recorded: no clock went back behind it."""
    recorded = [moment for moment in snapshot.tables["machines"]["recorded_at"].to_pylist() if moment is not None]
    return float(max([snapshot.started_at, *recorded]).timestamp())


def _refuse_actors(checkpoint: Checkpoint) -> None:
    """Raise `NotRestorableError` if actors of a watched app are in a checkpoint."""
    whole = gathered(checkpoint.of_hosts)
    actors = [message[0] for message in whole.messages if is_actor(message[0])]
    if checkpoint.of_actors or actors:
        raise NotRestorableError(
            f"snapshot {checkpoint.snapshot_id} holds actors of a watched app: their code is no machine's, and runs on Ray"
            f" alone. Go on from it there: `ray-snapshot restore HISTORY {checkpoint.snapshot_id} SCRIPT`",
            obstacles=["it holds watched actors"],
        )


class _Reader:
    """Opens the pickles of one checkpoint."""

    def __init__(self, checkpoint: Checkpoint, snapshot: Snapshot) -> None:
        versions = snapshot.coverage.get("versions")
        python = versions.get("Python") if isinstance(versions, Mapping) else None
        about = checkpoint.about
        self.snapshot_id = checkpoint.snapshot_id
        self.run_id = run_of_machines(about["run_id"], about.get("life", 0))
        self.python = python
        self.runs = {self.run_id, about["run_id"], *about.get("aliases", ())}
        """Runs whose machines are those of this checkpoint."""

    def value(self, blob: bytes, what: str) -> Any:
        """Fresh objects; handles in them are of machines without Ray. Raises `NotRestorableError`."""
        try:
            return _Unpickler(blob, self.runs).load()
        except Exception as error:  # whatever the classes of the user's raise
            raise self._not_here(what, error) from error

    def arguments(self, saved: tuple[bool, bytes], what: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) of a message."""
        is_plain, blob = saved
        found = self.value(blob, f"the message {what}")
        return (found, {}) if is_plain else found

    def machine_class(self, key: str, blob: bytes, whole: Whole, classes: Mapping[str, Any]) -> Any:
        """The class of machines of a key, or what takes its place."""
        of = next((item[0] for item in whole.machines if item[1] == key), None)
        of = of or next((item[1] for item in whole.creations if item[2] == key), None)
        try:
            kind = _Unpickler(blob, self.runs).load()
        except Exception as error:  # no such module, or another Python
            named = next((classes[name] for name in _texts(blob) if name in classes), None)
            if named is not None:
                return named
            raise self._not_here("the class" if of is None else f"the class of {of}", error) from error
        return classes.get(kind.__name__, kind)

    def _not_here(self, what: str, error: Exception) -> NotRestorableError:
        remedy = "run this where the program's modules are found (its folder, or PYTHONPATH), or name the class: classes=[...]"
        if isinstance(self.python, str) and self.python.split(".")[:2] != python_version().split(".")[:2]:
            remedy = (
                f"it was taken under Python {self.python}, and this is {python_version()}: use that one, or {remedy}"
            )
        return NotRestorableError(
            f"{what} in snapshot {self.snapshot_id} cannot be loaded here ({type(error).__name__}: {str(error)[:200]}):"
            f" {remedy}",
            obstacles=[f"{what} cannot be loaded"],
        )


def _texts(blob: bytes) -> list[str]:
    """The texts in a pickle, without loading it; the last names the class, if the pickle names one by its module."""
    try:
        return [item for _, item, _ in pickletools.genops(blob) if isinstance(item, str)][-1:]
    except ValueError:
        return []


class _Unpickler(pickle.Unpickler):
    """Makes handles of machines of `runs` those of a system without Ray."""

    def __init__(self, blob: bytes, runs: Set[str]) -> None:
        super().__init__(io.BytesIO(blob))
        self._runs = runs

    def _handle(self, run_id: str, name: str, host: str | None = None) -> MachineHandle:
        return handle_of(RUN, name) if run_id in self._runs else handle_of(run_id, name, host)

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle names."""
        if name == "handle_of" and module == handles.__name__:
            return self._handle
        return super().find_class(module, name)
