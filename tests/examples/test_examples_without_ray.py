"""The pure parts of the examples: their graph, their references, and how they read a snapshot.

Where they run on Ray: `test_examples_on_ray.py`.
"""

import gzip
from pathlib import Path
from types import ModuleType

import networkx
import pytest

import ray_snapshot as rs
from ray_snapshot.examples import (
    bank,
    dining_philosophers,
    exactly_once_wordcount,
    example_run,
    shortest_paths,
    token_ring,
    work_pool,
)
from ray_snapshot.names import check_machine_name


@pytest.fixture(scope="module")
def graph() -> shortest_paths.Graph:
    return shortest_paths.load_graph()


@pytest.mark.contract
def test_the_graph_has_the_size_that_its_readme_states(graph: shortest_paths.Graph) -> None:
    readme = (shortest_paths.DATA.parent / "README.md").read_text()
    edges = sum(map(len, graph.values()))
    assert f"{len(graph):,} packages and {edges:,} edges" in readme
    assert (len(graph), edges) == (7_520, 43_364)


@pytest.mark.contract
def test_the_file_of_the_graph_names_its_source_and_date_and_is_compact() -> None:
    with gzip.open(shortest_paths.DATA, "rt") as lines:
        first = next(lines)
    assert first.startswith("# Debian 12.15 (bookworm), main, amd64, index of Sat, 11 Jul 2026")
    assert shortest_paths.DATA.stat().st_size < 500_000


def test_every_vertex_can_be_a_machine_and_is_reachable_by_edges_of_positive_weight(
    graph: shortest_paths.Graph,
) -> None:
    for name, others in graph.items():
        assert check_machine_name(name)
        assert all(other in graph and weight >= 1 for other, weight in others.items())
    assert len(shortest_paths.reference_distances(graph, "bash")) == len(graph)


@pytest.mark.contract
def test_scipy_and_networkx_agree_on_every_distance(graph: shortest_paths.Graph) -> None:
    other = networkx.DiGraph()
    other.add_weighted_edges_from((a, b, weight) for a, edges in graph.items() for b, weight in edges.items())
    expected = networkx.single_source_dijkstra_path_length(other, "bash")
    assert shortest_paths.reference_distances(graph, "bash") == expected


@pytest.mark.contract
def test_a_vertex_that_cannot_be_reached_has_no_distance() -> None:
    assert shortest_paths.reference_distances({"a": {"b": 2}, "b": {}, "c": {"a": 1}}, "a") == {"a": 0, "b": 2}


@pytest.mark.contract
def test_a_path_is_read_back_from_the_predecessors() -> None:
    assert shortest_paths.path_to("c", {"c": "b", "b": "a"}) == ["a", "b", "c"]


@pytest.mark.contract
def test_a_plus_in_a_package_becomes_a_character_that_machines_may_have(tmp_path: Path) -> None:
    (tmp_path / "graph.gz").write_bytes(gzip.compress(b"# a release\ng++\t1\tlibstdc++6\nlibstdc++6\t2049\t\n"))
    assert shortest_paths.load_graph(tmp_path / "graph.gz") == {"g__": {"libstdc__6": 3}, "libstdc__6": {}}


@pytest.mark.contract
def test_the_books_hold_what_accounts_have_and_what_is_on_its_way() -> None:
    snapshot = rs.Snapshot.from_rows(
        machines=[{"machine": "driver", "state": {}}]
        + [{"machine": n, "class_name": "Account", "state": {"balance": b}} for n, b in (("a", 60), ("b", 30))],
        messages=[
            {"source": "a", "target": "b", "method": "deposit", "args": [7]},
            {"source": "b", "target": "a", "method": "deposit", "args": [3]},
            {"source": "driver", "target": "a", "method": "open", "args": [99]},
        ],
    )
    assert bank.books(snapshot) == {"balances": 90, "in_flight": 10, "payments": 2}


@pytest.mark.contract
def test_the_right_is_found_in_a_member_or_on_a_channel() -> None:
    members = [{"machine": n, "class_name": "Member", "state": {"right": None}} for n in ("a", "b")]
    transit = rs.Snapshot.from_rows(
        machines=members, messages=[{"source": "a", "target": "b", "method": "enter", "args": ["it", 3]}]
    )
    held = rs.Snapshot.from_rows(machines=[members[0], {**members[1], "state": {"right": "it"}}])
    assert token_ring.place_of_right(transit) == "a -> b"
    assert token_ring.place_of_right(held) == "b"


@pytest.mark.contract
@pytest.mark.parametrize("believes", [True, False])
def test_the_naive_check_says_what_the_desk_believes_whatever_is_in_flight(believes: bool) -> None:
    snapshot = rs.Snapshot.from_rows(
        machines=[{"machine": "desk", "class_name": "Desk", "state": {"thinks_it_is_done": believes}}],
        messages=[{"source": "worker-0", "target": "latecomer", "method": "task", "args": [5, 10]}],
    )
    verdict = work_pool.everyone_said_idle.evaluate(snapshot)
    assert verdict.holds is believes
    assert verdict.evidence == {"tasks_in_flight": 1}


@pytest.mark.contract
def test_primes_are_those_of_a_sieve() -> None:
    sieve = [False, False] + [True] * 998
    for number in range(2, 32):
        sieve[number * number :: number] = [False] * len(sieve[number * number :: number])
    assert [work_pool.is_prime(number) for number in range(1_000)] == sieve


@pytest.mark.contract
def test_the_cut_of_the_example_run_is_recognised_and_its_channels_are_named_as_in_the_text() -> None:
    recorded = {"P1": ["A", "B"], "P2": ["F", "G", "H"], "P3": ["I"]}
    snapshot = rs.Snapshot.from_rows(
        machines=[{"machine": name, "state": {"events": events}} for name, events in recorded.items()],
        messages=[{"source": "P2", "target": "P1", "method": "from_h", "args": ["sent at H"]}],
    )
    assert example_run.up_to_the_cut.evaluate(snapshot).holds is True
    channels = example_run.channels(snapshot)
    assert channels.pop("C21") == [["sent at H"]]
    assert channels == {"C12": [], "C13": [], "C23": [], "C31": [], "C32": []}
    too_early = rs.Snapshot.from_rows(machines=[{"machine": "P1", "state": {"events": ["A"]}}])
    assert example_run.up_to_the_cut.evaluate(too_early).holds is False


@pytest.mark.contract
@pytest.mark.nightly
def test_the_text_that_is_counted_is_that_of_the_library_and_the_same_each_time(tmp_path: Path) -> None:
    parts = exactly_once_wordcount.make_text(tmp_path / "a")
    again = exactly_once_wordcount.make_text(tmp_path / "b")
    assert [part.read_bytes() for part in parts] == [part.read_bytes() for part in again]
    assert sum(part.stat().st_size for part in parts) > 5_000_000
    counts = exactly_once_wordcount.counted_at_once(parts)
    assert counts["self"] > counts["snapshot"] > 0


@pytest.mark.parametrize(
    "example", [bank, example_run, exactly_once_wordcount, shortest_paths, token_ring, work_pool, dining_philosophers]
)
def test_a_history_that_cannot_be_kept_is_told_before_ray_starts(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> None:
        raise AssertionError("Ray was started")

    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr("ray_snapshot.runtime.system.connect", refuse)
    monkeypatch.setattr("ray_snapshot.runtime.system._starts_ray", lambda: True)
    with pytest.raises(SystemExit) as left:
        example.main(["--history", str(tmp_path / "file" / "history")])
    assert left.value.code == 2
    assert "a history cannot be kept in" in capsys.readouterr().err.splitlines()[-1]
