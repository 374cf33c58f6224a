"""Every error that ray-snapshot raises on purpose: one base, the nearest built-in as second base.

Each says what was wrong, where, and what to do about it; what a program may want to read is an attribute.
All of them can be pickled, so that they cross Ray's process boundaries whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class RaySnapshotError(Exception):
    """Base of all errors of this package; keyword arguments become attributes."""

    def __init__(self, message: str, /, **fields: Any) -> None:  # a field may be called `message` too
        super().__init__(message)
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)

    if TYPE_CHECKING:  # the fields are given by keyword, error by error

        def __getattr__(self, name: str) -> Any: ...


def _rebuild(kind: type[RaySnapshotError], args: tuple[Any, ...], fields: dict[str, Any]) -> RaySnapshotError:
    error = kind(*args)
    error.__dict__.update(fields)
    return error


class NameNotAllowedError(RaySnapshotError, ValueError):
    """A system or machine name has characters that names may not have."""


class SettingError(RaySnapshotError, ValueError):
    """A setting has a value that cannot be used."""


class UnknownMachineError(RaySnapshotError, KeyError):
    """No machine of that name exists, or none appeared within the bound; `.machine`."""

    __str__ = Exception.__str__  # that of a KeyError is in quotes


class UnknownMethodError(RaySnapshotError, AttributeError):
    """A machine has no method of the name that a message asked for; `.machine`, `.method`."""


class WrongArgumentsError(RaySnapshotError, TypeError):
    """The arguments of a message, or of a constructor, do not fit the method; `.machine`, `.method`."""


class DuplicateMachineError(RaySnapshotError, ValueError):
    """A second machine was spawned under a name that is taken; `.machine`."""


class MachineStoppedError(RaySnapshotError, RuntimeError):
    """A message was sent to a machine that has stopped; `.machine`."""


class MachineFailedError(RaySnapshotError, RuntimeError):
    """An action raised; `.machine`, `.method`, `.message`, `.traceback` (text)."""


class MailboxFullError(RaySnapshotError, TimeoutError):
    """A sender was held at a full mailbox for longer than the bound; `.machine`, `.target`, `.seconds`."""


class UnpicklableMessageError(RaySnapshotError, TypeError):
    """An argument of a message cannot be pickled; `.machine`, `.method`."""


class NotAMachineError(RaySnapshotError, RuntimeError):
    """A message was sent from a process or thread that is no machine of the system."""


class HostDiedError(RaySnapshotError, RuntimeError):
    """A host's process is gone; `.host`, `.machines`."""


class SystemNotRunningError(RaySnapshotError, LookupError):
    """The system asked for is not running, or was closed; `.system`."""


class SystemRunningError(RaySnapshotError, RuntimeError):
    """A system of that name is already running on this cluster; `.system`."""


class SnapshotTimeoutError(RaySnapshotError, TimeoutError):
    """Something did not come within its bound; `.waited_for`, `.seconds`."""


class NeverHoldsError(SnapshotTimeoutError):
    """What was waited for can never come any more: the wait ended before its bound; `.waited_for`, `.seconds`, `.verdict`."""


class DeadlockError(RaySnapshotError, RuntimeError):
    """A wait can never end, for what it waits for is deadlocked (`on_deadlock="raise"`); the report is its text.

    `.verdict`, `.evidence` (the verdict's), `.snapshot_id`.
    """


class SnapshotAbortedError(RaySnapshotError, RuntimeError):
    """A snapshot was given up; `.snapshot_id`, `.reason`, `.machine`, `.call_site`."""


class InconsistentCutError(RaySnapshotError, ValueError):
    """The recorded states are no consistent cut; `.problems` lists each channel that shows it."""


class SnapshotRowsLostError(RaySnapshotError, LookupError):
    """Nothing raises this any more: a snapshot owns its rows. The name stays for programs that catch it."""


class NotRestorableError(RaySnapshotError, ValueError):
    """A snapshot cannot be restored; `.obstacles`."""


class RolledBackError(RaySnapshotError, RuntimeError):
    """The system was rolled back meanwhile: what was asked for belongs to a past that has been given up; `.snapshot_id`."""


class CheckpointError(RaySnapshotError, ValueError):
    """A checkpoint is damaged or forged, or its key cannot be used; `.path`."""


class SourceChangedError(RaySnapshotError, ValueError):
    """What a source reads is not what it was when the source recorded its position; `.path`."""


class OutputChangedError(RaySnapshotError, ValueError):
    """What a sink has written is not there any more, or another run or program writes there; `.path`."""


class UnreachableMachineError(RaySnapshotError, ValueError):
    """Markers of the named initiators cannot reach every machine; `.machines`."""


class DetectorError(RaySnapshotError, TypeError):
    """A detector is misdeclared or answered with something that is no verdict; `.detector`."""


class HistoryNotFoundError(RaySnapshotError, FileNotFoundError):
    """There is no history, or no such snapshot in it; `.path`."""


class HistoryFormatError(RaySnapshotError, ValueError):
    """A history is damaged, foreign, or of a newer format; `.path`, `.table`."""


class HistoryWriteError(RaySnapshotError, OSError):
    """A history cannot be written where it was asked for; `.path`."""


class QueryError(RaySnapshotError, ValueError):
    """A query in SQL is malformed, asks for what is no table of the history, or is too large to be answered; `.query`."""


class ScriptError(RaySnapshotError, ValueError):
    """A topology, events or schedule file has an error; `.path`, `.line`."""


class JavaMissingError(RaySnapshotError, RuntimeError):
    """Spark needs Java 17 or newer and none was found; `.tried` lists what was looked at."""


class MissingExtraError(RaySnapshotError, ImportError):
    """An optional part is not installed; the message names the `pip install` that brings it."""


class SparkJobError(RaySnapshotError, RuntimeError):
    """Spark did not start, or a job failed in it; `.job`."""


class ProtocolError(RaySnapshotError, RuntimeError):
    """An event that the protocol's table does not allow: a bug of ray-snapshot, never of its user."""


class NotDeterministicError(RaySnapshotError, RuntimeError):
    """Under `ray_snapshot.testing` an action did something else when it was done again; `.machine`, `.method`, `.call_site`."""


class UnwindingCaughtError(RaySnapshotError, RuntimeError):
    """Under `ray_snapshot.testing` an action caught what ends it where it waits; `.machine`, `.method`, `.call_site`."""


class ScheduleError(RaySnapshotError, ValueError):
    """A schedule does not fit the machines that it is replayed on; `.step` is the first that cannot be taken."""


class ClusterError(RaySnapshotError, RuntimeError):
    """Ray cannot be started or reached as asked; `.what` and `.remedy`, where the remedy is known."""


class NodeNotReadyError(ClusterError):
    """The workers of a node cannot import this package, or have another version of it; `.node`, `.address`."""


class UnsupportedRayError(RaySnapshotError, RuntimeError):
    """This version of Ray does not have the inner shape that following its calls relies on."""
