"""The published algorithms: each right one holds in every order, each mistake is found, and two models have their
published size.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import published_models
import pytest
from clean import clean_environment, ran

import ray_snapshot as rs
from ray_snapshot import testing
from ray_snapshot.examples import algorithms
from ray_snapshot.examples.algorithms import echo, lamport_mutex, raft_election, transaction_commit, two_phase_commit
from ray_snapshot.examples.algorithms.__main__ import main as algorithms_main

PACKAGE = "ray_snapshot.examples.algorithms"


@dataclass(frozen=True)
class Row:
    """What is known of an algorithm: how many states it has, and how its mistake is found."""

    name: str
    states: int
    broken: str
    """The property that the mistake breaks."""
    steps: int
    """How many its shortest counterexample has."""
    loop_from: int | None = None

    @property
    def algorithm(self) -> algorithms.Algorithm:
        return next(one for one in algorithms.ALGORITHMS if one.name == self.name)


ROWS = [
    Row("dijkstra_scholten", 1_147, "no_early_announcement", 6),
    Row("safra", 105, "no_early_announcement", 10),
    Row("ricart_agrawala", 2_280, "one_at_a_time", 11),
    Row("suzuki_kasami", 589, "all_have_entered", 9),
    Row("lamport_mutex", 20_000, "one_at_a_time", 5),
    Row("chang_roberts", 119, "all_know_the_leader", 11, loop_from=7),
    Row("bully", 4_370, "all_know_a_leader", 12),
    Row("raft_election", 832, "one_leader_a_term", 8),
    Row("two_phase_commit", 125, "all_or_none", 7),
    Row("transaction_commit", 1_088, "consistent", 10),
    Row("alternating_bit", 2_249, "answered_means_taken", 11),
    Row("gossip", 3_289, "all_agree", 13),
    Row("echo", 75, "parents_and_children_agree", 8),
]
every = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@pytest.mark.contract
@every
def test_a_right_algorithm_holds_in_every_order(row: Row) -> None:
    found = row.algorithm.explore()
    assert (found.ok, found.complete, found.states) == (True, True, row.states), str(found)


@pytest.mark.contract
@every
def test_the_mistake_is_found_drawn_and_replayed(row: Row, tmp_path: Path) -> None:
    found = row.algorithm.explore("broken")
    wrong = found.counterexample
    assert wrong is not None
    assert (wrong.broken, len(wrong.steps), wrong.loop_from) == (row.broken, row.steps, row.loop_from), str(wrong)
    drawing = Path(wrong.diagram(tmp_path / "wrong.svg")).read_text(encoding="utf-8")
    machines = {event.machine for event in wrong.events}
    assert all(f">{name}<" in drawing for name in machines)
    assert drawing.count('class="message') >= len([step for step in wrong.steps if "sends" in step])
    assert testing.replay(row.algorithm.module.broken, wrong.schedule).steps == wrong.steps


def test_each_algorithm_stands_in_the_tables_and_says_where_it_is_from() -> None:
    folder = Path(algorithms.__file__).parent
    names = [one.name for one in algorithms.ALGORITHMS]
    assert names == [row.name for row in ROWS]
    assert {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"} == set(names)
    for one in algorithms.ALGORITHMS:
        told = one.module.__doc__ or ""
        assert [word for word in ("Source: ", "Assumed of the ", "`broken`: ") if word not in told] == [], one.name


@pytest.mark.contract
def test_the_page_has_the_sizes_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "testing-machines.md").read_text(encoding="utf-8")
    for row in ROWS:
        assert re.search(rf"^\| `{row.name}` \|.*\| `{row.broken}`.*\| {row.states:,} \|$", page, re.MULTILINE), (
            row.name
        )


@pytest.mark.contract
def test_the_program_explores_what_it_is_asked_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert algorithms_main(["safra", "--draw", str(tmp_path / "drawn")]) == 0
    assert (
        "safra: 105 states, all right\n    broken: no_early_announcement fails after 10 steps"
        in capsys.readouterr().out
    )
    assert [path.name for path in (tmp_path / "drawn").iterdir()] == ["safra.svg"]
    with pytest.raises(SystemExit) as left:
        algorithms_main(["paxos"])
    assert left.value.code == 2
    assert "no algorithm paxos: choose from dijkstra_scholten, safra, " in capsys.readouterr().err


@pytest.mark.contract
def test_the_leader_of_a_commit_that_dies_leaves_the_others_in_doubt() -> None:
    """Two-phase commit blocks: that is no mistake of this one, but known of the protocol."""
    found = testing.explore(
        two_phase_commit.build,
        always=[two_phase_commit.all_or_none],
        eventually=[two_phase_commit.all_decided],
        crashes=1,
    )
    assert found.broken == "all_decided"
    assert any("coordinator crashes" in step for step in found.counterexample.steps)  # type: ignore[union-attr]


def all_stand(system: Any) -> None:
    for name in ("a", "b", "c"):
        others = [system.machine(other) for other in ("a", "b", "c") if other != name]
        system.spawn(raft_election.Member, others, 1, name=name)


@pytest.mark.contract
def test_votes_may_be_split_so_that_no_one_leads() -> None:
    """Raft's paper, 5.2: "no candidate would obtain a majority"; so that one is elected is no property of the right one."""

    def one_leads(states: Any) -> bool:
        return any(member.role == "leader" for member in states.values())

    assert testing.explore(raft_election.build, eventually=[one_leads]).ok
    assert (
        testing.explore(all_stand, always=[raft_election.one_leader_a_term], eventually=[one_leads]).broken
        == "one_leads"
    )


@pytest.mark.contract
def test_a_command_explores_an_algorithm_and_draws_what_is_wrong(tmp_path: Path) -> None:
    words = [f"{PACKAGE}.safra:broken", "--always", f"{PACKAGE}.safra:no_early_announcement"]
    done = ran(
        sys.executable,
        "-m",
        "ray_snapshot.cli",
        "explore",
        *words,
        "--never",
        "deadlock",
        "--diagram",
        "wrong.svg",
        env=clean_environment(HOME=str(tmp_path)),
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "announced false -> true" in done.stdout
    assert (tmp_path / "wrong.svg").read_text(encoding="utf-8").startswith("<svg")


# ---- published sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.contract
def test_echo_has_the_75_states_of_its_published_model() -> None:
    """`MCEcho.cfg`, N1 and R1: 75 distinct states, depth 16 (TLC counts states on the way, we count steps).

    github.com/tlaplus/Examples, specifications/echo/manifest.json. One action of ours is one action of the model.
    """
    found = testing.explore(echo.build)
    assert found.complete
    assert (found.states, found.depth + 1) == (75, 16)


def images(build: Any) -> set[Any]:
    """The states of the model that the states of ours stand for."""
    seen = set()

    def look(states: Any) -> bool:
        seen.add(transaction_commit.state_of_model(states))
        return transaction_commit.consistent(states)

    found = testing.explore(build, always=[look])
    assert found.ok, str(found)
    assert found.complete, found.why
    return seen


@pytest.mark.contract
def test_two_phase_commit_has_the_288_states_of_its_published_model() -> None:
    """`TwoPhase.cfg`, three resource managers: 288 distinct states (TLC), and as many in stateright's `examples/2pc.rs`.

    They are the images of our states, of which there are more: see `transaction_commit`.
    """
    seen = images(transaction_commit.build)
    assert len(seen) == 288
    assert seen == published_models.two_phase(["rm-0", "rm-1", "rm-2"])


@pytest.mark.contract
@pytest.mark.nightly
def test_five_resource_managers_have_the_8832_states_of_the_published_model() -> None:
    """`examples/2pc.rs` of github.com/stateright/stateright at ab8c8be9341505e0f71edbe5dd88ed275bd976a4: 8,832 for five."""
    seen = images(transaction_commit.five)
    assert len(seen) == 8_832
    assert seen == published_models.two_phase([f"rm-{number}" for number in range(5)])


def lamports(build: Any, max_clock: int) -> testing.Exploration:

    def max_clock_holds(states: Any) -> bool:
        return all(process.clock <= max_clock for process in states.values())

    found = testing.explore(build, always=[lamport_mutex.one_at_a_time], within=max_clock_holds, most_states=5_000_000)
    assert found.ok, str(found)
    assert found.complete, found.why
    return found


def two_processes(system: Any) -> None:
    for name in ("1", "2"):
        system.spawn(lamport_mutex.Process, ["1", "2"], name=name)


@pytest.mark.contract
@pytest.mark.parametrize(("build", "processes", "max_clock"), [(two_processes, 2, 5), (lamport_mutex.published, 3, 2)])
def test_lamports_processes_have_as_many_states_as_their_published_model(
    build: Any, processes: int, max_clock: int
) -> None:
    model = published_models.lamport_mutex(processes, max_clock)
    found = lamports(build, max_clock)
    assert found.states - found.outside == len(model)
    assert len(model) > 500


@pytest.mark.contract
@pytest.mark.nightly
def test_lamports_processes_have_the_724274_states_of_their_published_model() -> None:
    """`MCLamportMutex.cfg` (N = 3, maxClock = 6): 724,274 distinct states, depth 61 (TLC counts states on the way).

    github.com/tlaplus/Examples, specifications/lamport_mutex/manifest.json. One action of ours is one action of the model,
    and a state of ours is a state of the model.
    """
    found = lamports(lamport_mutex.published, 6)
    assert (found.states - found.outside, found.depth + 1) == (724_274, 61)


# ---- on Ray -------------------------------------------------------------------------------------------------------------


def as_machines(snapshot: rs.Snapshot) -> dict[str, Any]:
    """What a property is asked about: the machines of a snapshot, by name, with their attributes."""
    found = {name: one.state for name, one in snapshot.machines.items() if name != "driver"}
    return {name: SimpleNamespace(**state) for name, state in found.items()}


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("name", ["safra", "chang_roberts", "suzuki_kasami", "echo"])
def test_the_same_machines_run_on_ray_and_every_snapshot_has_the_properties(name: str) -> None:
    one = next(algorithm for algorithm in algorithms.ALGORITHMS if algorithm.name == name)
    with rs.System(name) as system:
        one.module.build(system)
        system.start()
        snapshots = [system.snapshot(timeout=30) for _ in range(5)]
        assert system.wait_for("termination", timeout=60).holds
        snapshots.append(system.snapshot(timeout=30))
    seen = [as_machines(snapshot) for snapshot in snapshots]
    assert all(getattr(one.module, name)(machines) for name in one.always for machines in seen)
    assert all(getattr(one.module, name)(seen[-1]) for name in one.eventually)
