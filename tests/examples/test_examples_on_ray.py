"""Each example, run to its end on Ray, must show what its first paragraph says it shows.

The pure parts are tested in `test_examples_without_ray.py`.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import ray
from clean import clean_environment, on_cluster, ran

import ray_snapshot as rs
from ray_snapshot.examples import bank, dining_philosophers, example_run, work_pool

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.contract]


class Heard(list[rs.Verdict]):
    """The verdicts that a system published, as a subscriber hears them."""

    def answers(self, detector: str) -> set[bool | None]:
        return {verdict.holds for verdict in self if verdict.detector == detector}


@pytest.mark.nightly
def test_no_snapshot_of_the_bank_loses_a_coin_though_money_is_in_flight_in_some() -> None:
    heard = Heard()
    facts = bank.play(on_verdict=heard.append, accounts=10)
    sums = [row["balances"] + row["in_flight"] for row in facts["books"]]
    assert sums == [facts["total"]] * 6
    assert facts["conserved"] == [True] * 6
    assert heard.answers("conservation") == {True}
    assert any(row["in_flight"] for row in facts["books"]), "adding up the balances was right every time"
    assert facts["books"][-1] == {"balances": facts["total"], "in_flight": 0, "payments": 0}
    assert facts["terminated"] is True


@pytest.mark.nightly
def test_the_philosophers_deadlock_and_every_one_of_them_and_of_their_forks_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = Heard()
    facts = dining_philosophers.play(on_verdict=heard.append)
    everyone = {f"{kind}-{seat}" for kind in ("philosopher", "fork") for seat in range(5)}
    assert facts["proven"] == "deadlock"
    assert set(facts["members"]) == everyone
    assert set(facts["meals"].values()) == {0}
    assert True not in heard.answers("termination"), "stuck is not done"
    assert ["alarm in dining_philosophers" in text for text in caplog.messages] == [True], "told once, on stderr"


@pytest.mark.nightly
def test_polite_philosophers_all_eat_and_no_snapshot_shows_a_deadlock() -> None:
    heard = Heard()
    facts = dining_philosophers.play(on_verdict=heard.append, polite=True, meals=4)
    assert facts["proven"] == "termination"
    assert set(facts["meals"].values()) == {4}
    assert heard.answers("deadlock") == {False}


@pytest.mark.nightly
def test_the_naive_check_calls_the_pool_done_on_a_snapshot_that_says_it_is_not() -> None:
    heard = Heard()
    facts = work_pool.play(on_verdict=heard.append, workers=4, limit=20_000)
    at: defaultdict[str, dict[str, bool | None]] = defaultdict(dict)
    for verdict in heard:
        at[verdict.snapshot_id][verdict.detector] = verdict.holds
    assert at[facts["naive_snapshot"]] == {"everyone_said_idle": True, "termination": False}
    assert facts["termination_then"] is False
    assert facts["tasks_in_flight"] > 0
    assert facts["searched_then"] < facts["searched"] == 20_000
    assert facts["primes"] == 2_262, "the number of primes below 20,000"
    assert facts["terminated"] is True


@pytest.mark.nightly
def test_the_example_run_is_recorded_as_the_text_says() -> None:
    facts = example_run.play()
    assert facts["initiators"] == ["P1"]
    assert facts["cut"] == {"P1": ["A", "B"], "P2": ["F", "G", "H"], "P3": ["I"]}
    assert facts["channels"] == {
        "C12": [], "C13": [], "C21": [["sent at H"]], "C23": [], "C31": [], "C32": [],
    }  # fmt: skip
    assert facts["end"] == {"P1": ["A", "B", "C", "D", "E"], "P2": ["F", "G", "H"], "P3": ["I", "J"]}
    assert not any(facts["channels_at_the_end"].values())


def test_an_example_runs_as_a_script_and_keeps_its_history(tmp_path: Path) -> None:
    import ray

    script = Path(dining_philosophers.__file__)
    environment = clean_environment(RAY_ADDRESS=ray.get_runtime_context().gcs_address)
    command = [sys.executable, str(script), "--json", "--polite", "--history", str(tmp_path / "history")]
    done = ran(*command, env=environment)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert set(facts["meals"].values()) == {3}
    assert len(rs.History(tmp_path / "history").verdicts()) > 0


@pytest.mark.nightly
def test_the_market_is_one_system_whose_coins_add_up_and_which_goes_back_out_of_a_deadlock_with_both_lines() -> None:
    environment = on_cluster(ray.get_runtime_context().gcs_address)
    command = [sys.executable, str(EXAMPLES / "market.py"), "--traders", "10", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    found = json.loads(done.stdout.splitlines()[-1])
    assert [one["conserved"] for one in found["seen"]] == [True] * 5
    assert any(one["held"] < found["total"] for one in found["seen"]), "adding up the states was right every time"
    assert found["end"] == "Terminated: 13 machines passive or stopped, nothing in flight."
    assert found["core"] == ["trader-0", "north"]
    assert "market.py" in found["sentence"]
    assert found["again"] == found["end"], "machines and banks are out of it, together"
    assert "1 machine and 1 call can never move again" in found["sentence"]
