"""Columns that are not read for detectors change nothing that they say."""

import pytest

from ray_snapshot import Detector, Verdict
from ray_snapshot.detectors import Deadlock, OrphanedWait, Reached, Termination, TokenConservation, UniqueToken
from ray_snapshot.history import History
from ray_snapshot.questions.needed import needed_columns
from ray_snapshot.synth import ANOMALIES, Settings, synthesise
from ray_snapshot.verdicts import FunctionDetector, Standards

BY_STATUS = [Termination(), Termination(machines=["account-*"], name="group"), Deadlock(), OrphanedWait()]
BY_STATES = [
    TokenConservation(None, "$.balance", {"deposit": "$[0]"}),
    TokenConservation(1, "$.balance", {"deposit": "$[0]"}, name="wrong"),
    UniqueToken("$.balance"),
    Reached("$.balance", 10**9),
]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    path = tmp_path_factory.mktemp("needed") / "history"
    synthesise(path, Settings(machines=240, snapshots=24, anomalies=tuple(ANOMALIES)), verdicts=False)
    return History(path)


def _said(history: History, detectors: list[Detector], *, is_narrow: bool) -> list[tuple[object, ...]]:
    ids = sorted(history.table("snapshots")["snapshot_id"].to_pylist())
    standards, columns = Standards(), needed_columns(detectors) if is_narrow else None
    found: list[Verdict] = []
    for snapshot in history.load_many(ids, columns=columns):
        found += [standards.evaluate(detector, snapshot) for detector in detectors]
    return [(one.snapshot_id, one.detector, one.holds, one.evidence, one.sentence) for one in found]


@pytest.mark.parametrize("detectors", [BY_STATUS, BY_STATES, BY_STATUS + BY_STATES], ids=["status", "states", "both"])
def test_detectors_say_the_same_without_the_columns_that_they_do_not_need(
    history: History, detectors: list[Detector]
) -> None:
    narrow = _said(history, detectors, is_narrow=True)
    assert narrow == _said(history, detectors, is_narrow=False)
    assert not [said for said in narrow if "error" in said[3]]
    assert {said[2] for said in narrow} >= {True, False}


def test_states_are_read_for_those_only_who_ask_for_them() -> None:
    blind, seeing = needed_columns(BY_STATUS), needed_columns([*BY_STATUS, UniqueToken()])
    assert blind is not None
    assert seeing is not None
    assert not {"state", "args"} & {*blind["machines"], *blind["messages"]}
    assert {"state", "args"} <= {*seeing["machines"], *seeing["messages"]}


def test_for_a_detector_of_the_users_own_all_is_read() -> None:
    own = FunctionDetector(lambda snapshot: None, name="own", stable=False, alarm_when=None)
    assert needed_columns([*BY_STATUS, own]) is None


@pytest.mark.parametrize(
    "own", ["a name", frozenset({"statuses"}), lambda self, row: row], ids=["text", "set", "method"]
)
def test_what_a_users_own_calls_looks_at_says_nothing(own: object) -> None:
    given = type("Own", (UniqueToken,), {"looks_at": own})(name="own")
    assert needed_columns([*BY_STATUS, given]) is None
