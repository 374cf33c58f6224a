"""The machines that write: what they are sent shows once, when the snapshot that holds it is kept. Imports no Ray.

`two_phases` is what they do; here are only the machines. Both need `System(checkpoint=True)` or `recover="rollback"`: without
it no snapshot is ever kept, and nothing would ever show.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pyarrow as pa

from ray_snapshot.pipelines.delta import DeltaOutput
from ray_snapshot.pipelines.two_phases import Committer, Folder, Output
from ray_snapshot.runtime.mixin import SnapshotMixin


class _Sink(SnapshotMixin):
    """`write.send(rows)`: a table, a dictionary of columns, or a list of dictionaries; errors in them stop the system."""

    _output: ClassVar[type[Any]]

    def __init__(self, path: str | os.PathLike[str], schema: pa.Schema) -> None:
        self.path = os.path.abspath(path)
        self.schema = schema
        self._committer = Committer.begun(self._made(), self.machine_name)

    def _made(self) -> Output:
        made: Output = self._output(self.path, self.schema)
        return made

    def write(self, rows: Any) -> None:
        """Take rows in; they show with a snapshot."""
        self._committer.write(rows)

    def snapshot_state(self) -> Any:
        """Phase one: stage what was written as a part."""
        own = {name: value for name, value in self.__dict__.items() if name != "_committer"}
        return {**own, "ledger": self._committer.stage()}

    def snapshot_kept(self, snapshot_id: str, state: Any) -> None:  # noqa: ARG002 - the state says it all
        """Phase two: publish the parts that the kept state names."""
        self._committer.commit(state["ledger"])

    def restore_state(self, state: Any) -> None:
        """Show what the state says, and nothing else."""
        self.__dict__.update((name, value) for name, value in state.items() if name != "ledger")
        self._committer = Committer.restored(self._made(), state["ledger"])


class ParquetSink(_Sink):
    """Writes Parquet files into the folder `path`, about one a snapshot. Raises `OutputChangedError`; see `Folder`.

    `path` must be on a file system that all nodes share, if there are several: the sink may come back on another one.
    """

    _output = Folder


class DeltaSink(_Sink):
    """Appends to the Delta table `path` (made if it is not there), one commit a snapshot; see `DeltaOutput`.

    Several sinks and other writers may append to one table, and it may be compacted. The same file system as `ParquetSink`'s.
    """

    _output = DeltaOutput
