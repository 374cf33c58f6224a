"""Rows of machines at rest that have stayed with their hosts (`host.kept`), as who needs them asks for them.

Whoever gets a snapshot (the analyst, a program, a command) asks the hosts, past the service. Imports neither Arrow nor
numpy: see `collected`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import DetectorError, RaySnapshotError, SnapshotRowsLostError
from ray_snapshot.runtime.faults import first_line

if TYPE_CHECKING:
    from ray_snapshot.adding import AddsUp

FETCH_S = 30.0
"""How long rows may take that have stayed with their hosts."""


@dataclass(frozen=True, slots=True)
class PartialAnswer:
    """What a host says that is asked what a detector makes of the rows it keeps."""

    value: bytes = b""
    """Pickled."""
    is_gone: bool = False
    """The rows are not kept any more."""
    is_unknown: bool = False
    """The detector has not been learnt."""
    error: str = ""
    """What the detector has raised, with the place."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows of machines at rest, of one snapshot, that have stayed with their hosts."""

    snapshot_id: str
    number: int
    hosts: dict[str, Any]
    """By name: the Ray actors."""
    history: str | None = None
    """Where the rows are, too, once they are committed."""
    lost: list[str] = field(default_factory=list)
    """Why they cannot be had, once that is known: nobody waits for them again."""

    def fetch(self, names: Sequence[str] | None = None, seconds: float = FETCH_S) -> list[Any]:
        """The rows, a packed table a host; `names`: of these machines only. Raises `SnapshotRowsLostError`."""
        what = f"rows of snapshot {self.snapshot_id} that stayed with their hosts ({', '.join(self.hosts)})"
        found = self._asked(lambda actor: actor.rows.remote(self.number, names), list(self.hosts), what, seconds)
        if any(packed is None for packed in found):
            raise self._lost(f"{what} are not kept any more: they were asked for too late")
        return found

    def partials(self, item: AddsUp, header: Any) -> list[Any]:
        """What a detector makes of the rows, a value a host; `header`: the snapshot's row, as a packed table.

        Raises `SnapshotRowsLostError`, `DetectorError`.
        """
        from ray_snapshot.adding import pickled

        key, blob = pickled(item)
        what = f"what {item.name} makes of rows of snapshot {self.snapshot_id} that stayed with their hosts"
        hosts = list(self.hosts)
        answers = self._asked(lambda actor: actor.partial.remote(self.number, header, key), hosts, what)
        found = dict(zip(hosts, answers, strict=True))
        anew = [host for host, answer in found.items() if answer.is_unknown]
        again = self._asked(lambda actor: actor.partial.remote(self.number, header, key, blob), anew, what)
        found.update(zip(anew, again, strict=True))
        failed = next((answer.error for answer in found.values() if answer.error), None)
        if failed is not None:
            raise DetectorError(failed, detector=item.name)
        if any(answer.is_gone for answer in found.values()):
            raise self._lost(f"{what} cannot be had: the rows are not kept any more, they were asked for too late")
        return [pickle.loads(answer.value) for answer in found.values()]

    def _asked(
        self, call: Callable[[Any], Any], hosts: Sequence[str], what: str, seconds: float = FETCH_S
    ) -> list[Any]:
        """What these hosts answer. Raises `SnapshotRowsLostError`, at once if that has been found out before."""
        import ray

        from ray_snapshot.runtime.cluster import ask

        if self.lost:
            raise SnapshotRowsLostError(self.lost[0], snapshot_id=self.snapshot_id, hosts=list(self.hosts))
        if not ray.is_initialized():  # else the call would start another Ray
            raise self._lost(f"{what} cannot be had: this program has left Ray")
        try:
            found: list[Any] = ask([call(self.hosts[host]) for host in hosts], what, seconds)
        except Exception as error:  # Ray raises of many kinds where a call cannot even be made
            raise self._lost(f"{what} cannot be had: {first_line(error)}") from error
        return found

    def _lost(self, text: str) -> SnapshotRowsLostError:
        self.lost.append(text)
        return SnapshotRowsLostError(text, snapshot_id=self.snapshot_id, hosts=list(self.hosts))

    def committed(self) -> Any:
        """All rows of machines of the snapshot, as the history has them; None if it does not list the snapshot as complete."""
        if self.history is None:
            return None
        from ray_snapshot.history import History

        try:
            found = History(self.history).load(self.snapshot_id)
        except RaySnapshotError:
            return None
        return found.tables["machines"] if found.status == "complete" else None
