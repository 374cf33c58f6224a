"""The history that most tests of jobs ask, made once for a test run."""

import pytest
import three_runs as runs
from small_histories import BANK, bank, live, relapses, table, write

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.history import History


@pytest.fixture(scope="session")
def snapshots() -> list[Snapshot]:
    return [*bank(), *table(), *relapses()]


@pytest.fixture(scope="session")
def verdicts(snapshots: list[Snapshot]) -> list[Verdict]:
    """The live verdicts; one is doctored: a deadlock in `table-1-0002` that was none."""
    found = live((taken for taken in snapshots if taken.system == "bank"), BANK, Termination())
    found += live((taken for taken in snapshots if taken.system == "table"), Deadlock())
    return [
        verdict.model_copy(update={"holds": True}) if verdict.snapshot_id == "table-1-0002" else verdict
        for verdict in found
    ]


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory, snapshots: list[Snapshot], verdicts: list[Verdict]) -> History:
    """The known history, in a folder whose name has what a path pattern would trip over."""
    return write(tmp_path_factory.mktemp("spark") / "my history {a,b}*", snapshots, verdicts)


@pytest.fixture(scope="session")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Three runs of two systems."""
    return runs.write(tmp_path_factory.mktemp("runs") / "history")


@pytest.fixture(scope="session")
def rows_of_three_runs(three_runs: History) -> runs.Plain:
    """Its rows."""
    return runs.Plain(three_runs)
