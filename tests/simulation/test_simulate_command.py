"""`ray-snapshot simulate`: its formats, what it answers, and how it refuses what is wrong, file and line named."""

import json
from pathlib import Path
from typing import Any

import pytest

from ray_snapshot.cli import main
from ray_snapshot.protocol.choosing import PROTOCOLS
from ray_snapshot.protocol.turning import Turning

TWO = "2\nN1 5\nN2 0\nN1 N2\nN2 N1\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Write the files, run the command; returns (exit code, lines, what stood on stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, topology: str = TWO, **files: str) -> tuple[int, list[str], str]:
        options = []
        for name, text in {"topology": topology, **files}.items():
            (tmp_path / name).write_text(text)
            options += [f"--{name}", name]
        code = main(["simulate", *options, *arguments])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return run


def answers(found: tuple[int, list[str], str]) -> list[dict[str, Any]]:
    code, lines, err = found
    assert (code, err) == (0, "")
    return [json.loads(line) for line in lines]


# ---- answers --------------------------------------------------------------------------------------------------------------


CONSISTENT = ("chandy-lamport", "observer", "aligned-barrier", "unaligned-barrier")
BACK = "3\nA 10\nB 10\nC 10\nA B\nB C\nA C\nC A\n"


def complete(names: int) -> str:
    found = [f"N{index}" for index in range(names)]
    channels = [f"{one} {other}" for one in found for other in found if one != other]
    return "\n".join([str(names), *(f"{name} 1" for name in found), *channels])


@pytest.mark.contract
@pytest.mark.by_day(12)
@pytest.mark.parametrize("protocol", CONSISTENT)
@pytest.mark.parametrize("seed", range(8))
def test_under_every_protocol_no_token_is_lost_or_doubled_though_snapshots_of_different_sources_cross(
    run: Any, protocol: str, seed: int
) -> None:
    rich = BACK.replace("10", "50")  # enough, however long the tokens are under way
    lines = [
        line
        for turn in range(6)
        for line in (
            "send A B 1",
            "snapshot A",
            "send B C 1",
            "tick",
            "snapshot C B",
            "send C A 2",
            "send A C 1",
            f"tick {turn % 3 + 1}",
        )
    ]
    found = answers(run("--json", "--protocol", protocol, "--seed", str(seed), topology=rich, events="\n".join(lines)))
    assert [one["snapshot"] for one in found] == list(range(12))
    for one in found:
        assert one["complete"] is one["consistent"] is True
        assert sum(one["machines"].values()) + sum(message["tokens"] for message in one["messages"]) == 150


@pytest.mark.contract
def test_on_a_graph_without_cycles_aligned_barriers_record_no_channel(run: Any) -> None:
    topology = "4\nS 50\nX 0\nY 0\nT 0\nS X\nS Y\nX T\nY T\n"
    events = (
        "send S X 3\nsend S Y 2\ntick 9\nsend X T 1\nsend S X 1\nsnapshot S\nsend S Y 4\nsend Y T 2\ntick\nsend S X 2\n"
    )
    for seed in range(20):
        (found,) = answers(
            run("--json", "--protocol", "aligned-barrier", "--seed", str(seed), topology=topology, events=events)
        )
        assert found["messages"] == []
        assert sum(found["machines"].values()) == 50


@pytest.mark.contract
def test_an_unaligned_barrier_overtakes_what_its_channel_holds(run: Any) -> None:
    schedule = [
        {"op": "send", "source": "N1", "target": "N2", "tokens": 2},
        {"op": "snapshot", "machine": "N1"},
        {"op": "deliver", "source": "N1", "target": "N2"},
        {"op": "deliver", "source": "N2", "target": "N1"},
        {"op": "deliver", "source": "N1", "target": "N2"},
    ]
    code, lines, _ = run("--protocol", "unaligned-barrier", schedule="\n".join(map(json.dumps, schedule)))
    assert code == 0
    assert any("N1 -> N2 delivers barrier 0; N2 records snapshot 0" in line for line in lines)
    assert any("N1 -> N2          2  in flight" in line for line in lines)


ALIGNING = [  # N3 has the barrier of N1, and blocks N1; that of N2 does not come, but messages do
    {"op": "send", "source": "N2", "target": "N3", "tokens": 2},
    {"op": "snapshot", "machine": "N1"},
    {"op": "deliver", "source": "N1", "target": "N3"},
    {"op": "send", "source": "N1", "target": "N3", "tokens": 1},
    {"op": "deliver", "source": "N1", "target": "N3"},
    {"op": "deliver", "source": "N2", "target": "N3"},
    {"op": "deliver", "source": "N1", "target": "N2"},
    {"op": "send", "source": "N2", "target": "N3", "tokens": 4},
    {"op": "deliver", "source": "N2", "target": "N3"},
    {"op": "deliver", "source": "N2", "target": "N3"},
]
JOINING = "3\nN1 5\nN2 9\nN3 0\nN1 N2\nN1 N3\nN2 N3\n"


def aligning(run: Any, lines: int, *arguments: str) -> Any:
    schedule = "\n".join(map(json.dumps, ALIGNING[:lines]))
    return run("--protocol", "aligned-barrier", *arguments, topology=JOINING, schedule=schedule)


@pytest.mark.contract
def test_an_aligned_machine_is_blocked_until_its_last_barrier_comes(run: Any) -> None:
    (found,) = answers(aligning(run, 8, "--json"))
    assert (found["complete"], found["machines"]) == (False, {"N1": 5, "N2": 7})
    (found,) = answers(aligning(run, 10, "--json"))
    assert (found["complete"], found["machines"], found["messages"]) == (True, {"N1": 5, "N2": 7, "N3": 2}, [])


@pytest.mark.contract
def test_a_message_that_waits_behind_a_barrier_is_said_to_be_held_back_and_is_counted(run: Any) -> None:
    held = [line for line in aligning(run, 10)[1] if "held back" in line]
    assert [line.split()[0] for line in held] == ["5"]
    assert "N1 -> N3 delivers 1 token; held back" in held[0]
    (found,) = answers(aligning(run, 10, "--json"))
    assert (found["waited"], found["control_messages"]) == ({"N3": 1}, 3)


@pytest.mark.contract
def test_where_alignment_is_skipped_the_snapshot_says_what_a_restore_would_repeat(run: Any) -> None:
    """B's barrier comes first, and C goes on accepting from B; it records when A's comes."""
    topology = "3\nA 5\nB 5\nC 0\nA B\nA C\nB C\n"
    schedule = [
        {"op": "snapshot", "machine": "A"},
        {"op": "deliver", "source": "A", "target": "B"},
        {"op": "send", "source": "B", "target": "C", "tokens": 3},
        {"op": "deliver", "source": "B", "target": "C"},
        {"op": "deliver", "source": "B", "target": "C"},
        {"op": "deliver", "source": "A", "target": "C"},
    ]
    (found,) = answers(
        run(
            "--json",
            "--protocol",
            "at-least-once-barrier",
            topology=topology,
            schedule="\n".join(map(json.dumps, schedule)),
        )
    )
    assert found["machines"] == {"A": 5, "B": 5, "C": 3}
    assert found["duplicates"] == [{"source": "B", "target": "C", "messages": 1}]
    assert found["consistent"] is False


@pytest.mark.contract
@pytest.mark.parametrize("machines", [4, 8, 16, 32, 64])
def test_the_observer_costs_messages_by_machines_and_markers_by_channels(run: Any, machines: int) -> None:
    """The table of docs/howto/simulator.md."""
    told = {}
    for protocol in ("chandy-lamport", "observer"):
        code, lines, _ = run("--protocol", protocol, topology=complete(machines), events="snapshot N0\n")
        assert code == 0
        (line,) = [line for line in lines if line.startswith("snapshot 0")]
        told[protocol] = int(line.split("; ")[1].split()[0])
    assert told == {"chandy-lamport": machines * (machines - 1), "observer": 2 * (machines - 1)}
    page = (Path(__file__).parents[2] / "docs" / "howto" / "simulator.md").read_text()
    assert f"| {machines} | {told['chandy-lamport']:,} | {told['observer']:,} |" in page


@pytest.mark.contract
@pytest.mark.parametrize(("named", "count"), [(1, 4 + 4), (2, 3 + 4), (5, 0 + 4)])
def test_of_several_observers_all_but_the_first_report_to_it_unasked(run: Any, named: int, count: int) -> None:
    """Requests to those not named, and a report from each of the others."""
    names = " ".join(f"N{index}" for index in range(named))
    _, lines, _ = run("--protocol", "observer", topology=complete(5), events=f"snapshot {names}\n")
    assert (
        f"snapshot 0, started by {names.replace(' ', ', ')}: complete and consistent; {count} control messages" in lines
    )


@pytest.mark.contract
def test_an_observer_reaches_machines_to_which_no_channel_leads(run: Any) -> None:
    (found,) = answers(run("--json", "--protocol", "observer", topology="2\nA 1\nB 2\nB A\n", events="snapshot A\n"))
    assert found["machines"] == {"A": 1, "B": 2}


@pytest.mark.contract
def test_a_message_in_front_of_the_marker_is_in_flight(run: Any) -> None:
    assert answers(run("--json", events="send N1 N2 2\nsnapshot N2\n")) == [
        {
            "snapshot": 0,
            "complete": True,
            "machines": {"N1": 3, "N2": 0},
            "messages": [{"source": "N1", "target": "N2", "tokens": 2}],
            "consistent": True,
        }
    ]


@pytest.mark.contract
def test_what_a_snapshot_cost_is_told_where_a_protocol_is_named_or_there_are_several_initiators(run: Any) -> None:
    """The line of one initiator and markers has the keys that programs have always read, and no others."""
    found = answers(run("--json", "--protocol", "observer", events="snapshot N2\n"))
    assert (found[0]["initiators"], found[0]["control_messages"], found[0]["waited"]) == (["N2"], 2, {})
    assert answers(run("--json", events="snapshot N1 N2\n"))[0]["initiators"] == ["N1", "N2"]


@pytest.mark.contract
def test_a_snapshot_of_one_machine_is_complete_at_once(run: Any) -> None:
    found = answers(run("--json", topology="1\nonly 7\n", events="snapshot only\n"))
    said = {"snapshot": 0, "complete": True, "machines": {"only": 7}, "messages": [], "consistent": True}
    assert found == [said]


@pytest.mark.contract
@pytest.mark.by_day(8)
@pytest.mark.parametrize("seed", range(25))
def test_whatever_the_delays_no_token_is_lost_or_doubled(run: Any, seed: int) -> None:
    names = [f"N{index}" for index in range(1, 6)]
    channels = [(one, other) for one in names for other in names if one != other]
    topology = "\n".join(["5", *(f"{name} 20" for name in names), *map(" ".join, channels)])
    lines = []
    for index in range(60):
        source, target = channels[(index * 7) % len(channels)]
        lines += [f"send {source} {target} 1", *["tick"] * (index % 3), *[f"snapshot {target}"] * (index % 10 == 5)]
    found = answers(run("--json", "--seed", str(seed), topology=topology, events="\n".join(lines)))
    assert [one["snapshot"] for one in found] == list(range(6))
    for one in found:
        assert one["complete"] is one["consistent"] is True
        assert sum(one["machines"].values()) + sum(message["tokens"] for message in one["messages"]) == 100


@pytest.mark.contract
def test_the_seed_decides_and_is_printed(run: Any) -> None:
    events = "send N1 N2 1\ntick 2\nsnapshot N2\nsend N1 N2 1\ntick\nsnapshot N1\n"
    runs = [run("--seed", str(seed), events=events)[1] for seed in (1, 1, 2, 3, 4)]
    assert runs[0] == runs[1]
    assert len(set(map(tuple, runs))) > 2
    assert runs[2][0] == "events events, seed 2"
    assert run(events=events)[1][0] == "events events, seed 0"


@pytest.mark.contract
def test_no_message_overtakes_another_on_its_channel_and_each_waits_one_to_five_ticks(run: Any) -> None:
    events = "".join(f"send N1 N2 1\nsend N1 N2 2\ntick {n}\n" for n in (1, 2))
    for seed in range(20):
        rows = [line.split() for line in run("--seed", str(seed), topology=TWO.replace("5", "9"), events=events)[1][2:]]
        deliveries = [(int(row[0]), int(row[5])) for row in rows if "delivers" in row]
        assert [tokens for _, tokens in deliveries] == [1, 2, 1, 2]
        assert all(1 <= tick <= 6 for tick, _ in deliveries)


def deliveries(found: tuple[int, list[str], str]) -> list[tuple[str, str, int]]:
    """(channel, what, tick) of each delivery, in their order."""
    rows = [line.split(maxsplit=6) for line in found[1] if " delivers " in line]
    return [("".join(row[1:4]), " ".join(row[5:6] if row[5].isdigit() else row[5:]), int(row[0])) for row in rows]


@pytest.mark.contract
@pytest.mark.parametrize("seed", range(8))
def test_an_unaligned_barrier_waits_one_to_five_ticks_however_long_the_messages_wait_that_it_overtakes(
    run: Any, seed: int
) -> None:
    """Were its delay that of the oldest message, it would come when that is due: in the tick behind, here, or at once."""
    events = "send N1 N2 1\n" * 3 + "snapshot N1\n"
    found = deliveries(run("--protocol", "unaligned-barrier", "--seed", str(seed), events=events))
    (barrier,) = [tick for channel, what, tick in found if channel == "N1->N2" and what.startswith("barrier")]
    plain = deliveries(run("--seed", str(seed), events="send N1 N2 1\n" * 3))
    assert 1 <= barrier <= 5
    assert [tick for channel, what, tick in found if channel == "N1->N2" and what == "1"] == [
        max(tick, barrier) for _, _, tick in plain
    ]


@pytest.mark.contract
def test_a_long_tick_is_over_at_once(run: Any) -> None:
    """Were each tick passed through one by one, this would take hours."""
    long = 10**12
    code, lines, _ = run(events=f"send N1 N2 1\ntick {long}\nsnapshot N1\ntick {long}\nsend N1 N2 1\n")
    assert code == 0
    first, second = [int(line.split()[0]) for line in lines if "N1 -> N2 delivers 1 token" in line]
    assert 1 <= first <= 5
    assert 2 * long + 1 <= second <= 2 * long + 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ticks_in_which_nothing_is_due_are_skipped_and_no_others(run: Any, protocol: str) -> None:
    """`tick 20` is the same as 20 lines `tick`."""
    lines = "send A B 1\nsnapshot A\nsend B C 1\n{ticks}snapshot C B\nsend C A 1\n{ticks}send A C 1\n"
    for seed in range(3):
        once, one_by_one = (
            run("--seed", str(seed), "--protocol", protocol, topology=BACK, events=lines.format(ticks=ticks))[1]
            for ticks in ("tick 20\n", "tick\n" * 20)
        )
        assert once == one_by_one


@pytest.mark.contract
def test_a_schedule_leaves_nothing_to_chance_and_ends_where_it_ends(run: Any) -> None:
    lines = [
        {"op": "send", "source": "N1", "target": "N2", "tokens": 2},
        {"op": "snapshot", "machine": "N2"},
        {"op": "deliver", "source": "N2", "target": "N1"},
        {"op": "deliver", "source": "N1", "target": "N2"},
        {"op": "deliver", "source": "N1", "target": "N2"},
    ]
    whole = answers(run("--json", schedule="\n".join(map(json.dumps, lines))))
    part = answers(run("--json", schedule="\n".join(map(json.dumps, lines[:4]))))
    less = answers(run("--json", schedule="\n".join(map(json.dumps, lines[:2]))))
    message = {"source": "N1", "target": "N2", "tokens": 2}
    machines = {"N1": 3, "N2": 0}
    said = {"snapshot": 0, "messages": [message], "machines": machines}
    assert whole == [{**said, "complete": True, "consistent": True}]
    assert part == [{**said, "complete": False, "consistent": None}]
    one = {"machines": {"N2": 0}, "messages": []}
    assert less == [{**said, **one, "complete": False, "consistent": None}]


@pytest.mark.contract
def test_messages_come_in_the_order_of_the_channel_lines_and_in_order_within_a_channel(run: Any) -> None:
    topology = "3\nA 9\nB 9\nC 9\nC A\nA B\nB C\nA C\nB A\n"
    sends = [("A", "C", 3), ("A", "B", 2), ("A", "B", 1), ("C", "A", 4)]
    lines = [{"op": "send", "source": one, "target": other, "tokens": k} for one, other, k in sends]
    lines.append({"op": "snapshot", "machine": "B"})
    for channel in ("BA", "BC", "CA", "CA", "AB", "AB", "AB", "AC", "AC"):
        lines.append({"op": "deliver", "source": channel[0], "target": channel[1]})
    (found,) = answers(run("--json", topology=topology, schedule="\n".join(map(json.dumps, lines))))
    assert found["complete"] is found["consistent"] is True
    assert [tuple(message.values()) for message in found["messages"]] == [
        ("C", "A", 4),
        ("A", "B", 2),
        ("A", "B", 1),
        ("A", "C", 3),
    ]


@pytest.mark.contract
def test_overlapping_snapshots_do_not_touch_each_other(run: Any) -> None:
    lines = [
        {"op": "snapshot", "machine": "N1"},
        {"op": "send", "source": "N1", "target": "N2", "tokens": 1},
        {"op": "snapshot", "machine": "N2"},
        {"op": "deliver", "source": "N1", "target": "N2"},
        {"op": "deliver", "source": "N2", "target": "N1"},
        {"op": "deliver", "source": "N2", "target": "N1"},
        {"op": "deliver", "source": "N1", "target": "N2"},
        {"op": "deliver", "source": "N1", "target": "N2"},
    ]
    first, second = answers(run("--json", schedule="\n".join(map(json.dumps, lines))))
    assert (first["machines"], first["messages"]) == ({"N1": 5, "N2": 0}, [])
    assert second["machines"] == {"N1": 4, "N2": 0}
    assert second["messages"] == [{"source": "N1", "target": "N2", "tokens": 1}]
    assert first["consistent"] is second["consistent"] is True


@pytest.mark.contract
def test_every_order_is_tried_and_counted(run: Any) -> None:
    *snapshots, summary = answers(run("--json", "--exhaustive", events="send N1 N2 2\ntick\nsnapshot N2\n"))
    assert summary == {"states": 11, "ends": 2, "snapshots": 2, "consistent": True}
    assert sorted(one["machines"]["N2"] for one in snapshots) == [0, 2]


@pytest.mark.contract
def test_a_send_that_needs_what_is_to_come_waits_for_it_in_every_order(run: Any) -> None:
    *_, summary = answers(run("--json", "--exhaustive", events="send N1 N2 5\nsend N2 N1 5\nsnapshot N1\n"))
    assert summary["consistent"] is True


def test_a_protocol_that_is_wrong_is_told_and_the_exit_code_is_1(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Turning, "is_white", lambda self, colour, number: not colour)
    events = "send N1 N2 1\nsnapshot N1\nsnapshot N2\nsend N1 N2 1\n"
    code, lines, _ = run("--exhaustive", events=events)
    assert code == 1
    assert "NOT CONSISTENT" in "\n".join(lines)


# ---- what is wrong is refused, with its line --------------------------------------------------------------------------------


@pytest.mark.contract
@pytest.mark.parametrize(
    ("topology", "line", "told"),
    [
        ("", 1, "the file is empty"),
        ("two\nN1 1\n", 1, "expected the number of machines, found 'two'"),
        ("0\n", 1, "expected the number of machines"),
        ("2\nN1 1\n", 2, "2 machines were announced, but the file ends after 1"),
        ("2\nN1 1\nN2\n", 3, "expected NAME TOKENS (machine 2 of 2), found 'N2'"),
        ("2\nN1 1\nN2 -3\n", 3, "TOKENS is a whole number"),
        ("1\nN1 " + "9" * 19 + "\n", 2, "0 or more and at most 999,999,999,999,999,999"),
        ("# c\n2\nN1 1\n\nN1 2\n", 5, "a second machine 'N1'"),
        ("1\nN/1 1\n", 2, "machine name 'N/1' is not allowed"),
        ("2\nN1 1\nN2 1\nN1 N3\n", 4, "no machine 'N3'; the topology has N1, N2"),
        ("2\nN1 1\nN2 1\nN1 N2\nN1 N2\n", 5, "a second channel from N1 to N2"),
        ("2\nN1 1\nN2 1\nN1 N2 5\n", 4, "expected SOURCE TARGET, found 'N1 N2 5'"),
        ("1\nN1 1\nN1 N1\n", 3, "a channel from N1 to itself"),
    ],
)
def test_a_topology_with_an_error_is_refused(run: Any, topology: str, line: int, told: str) -> None:
    code, lines, err = run(topology=topology, events="")
    assert (code, lines) == (2, [])
    assert err.startswith(f"ray-snapshot: error: topology:{line}: ")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.contract
@pytest.mark.parametrize(
    ("events", "line", "told"),
    [
        ("send N1 N2 6", 1, "N1 has 5 tokens and cannot send 6"),
        ("send N1 N2 3\ntick\nsend N1 N2 3", 3, "N1 has 2 tokens and cannot send 3"),
        ("send N1 N9 1", 1, "no machine 'N9'"),
        ("send N1 N2 x", 1, "a whole number, 1 or more"),
        ("send N1 N2 0", 1, "a whole number, 1 or more"),
        ("send N1 N2", 1, "expected 'send SOURCE TARGET K'"),
        ("tick\n# so far so good\nhop N1", 3, "found 'hop N1'"),
        ("tick 0", 1, "1 or more and at most 999,999,999,999,999,999; found 'tick 0'"),
        ("tick x", 1, "the N of 'tick N' is a whole number, 1 or more"),
        ("send N1 N2 " + "9" * 19, 1, "at most 999,999,999,999,999,999"),
        ("snapshot", 1, "found 'snapshot'"),
        ("snapshot N3", 1, "no machine 'N3'"),
    ],
)
def test_events_with_an_error_are_refused(run: Any, events: str, line: int, told: str) -> None:
    code, lines, err = run(events=events)
    assert (code, lines) == (2, [])
    assert err.startswith(f"ray-snapshot: error: events:{line}: ")
    assert told in err


@pytest.mark.contract
@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ("{", "no JSON object"),
        ("[]", 'expected {"op": "send"'),
        ('{"op": "jump"}', 'expected {"op": "send"'),
        ('{"op": "snapshot", "machine": "N1", "now": true}', 'expected {"op": "send"'),
        ('{"op": "snapshot", "machine": 1}', "no machine 1"),
        ('{"op": "send", "source": "N1", "target": "N2", "tokens": true}', "a whole number, 1 or more"),
        ('{"op": "send", "source": "N1", "target": "N2", "tokens": 9}', "N1 has 5 tokens and cannot send 9"),
        ('{"op": "deliver", "source": "N1", "target": "N2"}', "the channel from N1 to N2 is empty"),
        ('{"op": "deliver", "source": "N1", "target": "N1"}', "no channel from N1 to N1"),
    ],
)
def test_a_schedule_with_an_error_is_refused(run: Any, schedule: str, told: str) -> None:
    code, lines, err = run(schedule=f"# first line\n{schedule}\n")
    assert (code, lines) == (2, [])
    assert err.startswith("ray-snapshot: error: schedule:2: ")
    assert told in err


@pytest.mark.contract
def test_a_missing_channel_is_refused(run: Any) -> None:
    code, _, err = run(topology="2\nN1 1\nN2 1\nN1 N2\n", events="send N2 N1 1")
    assert code == 2
    assert "events:1: no channel from N2 to N1 in the topology" in err


@pytest.mark.contract
def test_an_initiator_that_cannot_reach_every_machine_is_refused_with_their_names(run: Any) -> None:
    code, _, err = run(topology="3\nN1 1\nN2 1\nN3 1\nN1 N2\nN3 N1\n", events="tick\nsnapshot N1")
    assert code == 2
    assert "events:2: a snapshot from N1 cannot reach N3" in err


@pytest.mark.contract
def test_a_send_that_never_has_its_tokens_is_refused_in_every_order_too(run: Any) -> None:
    code, _, err = run("--exhaustive", events="tick\nsend N1 N2 6")
    assert code == 2
    assert "events:2: N1 has 5 tokens and cannot send 6" in err


@pytest.mark.parametrize(("protocol", "ends"), [*zip(PROTOCOLS, (6, 7, 2, 7, 3), strict=True)])
def test_every_order_is_tried_under_every_protocol(run: Any, protocol: str, ends: int) -> None:
    """Markers, requests and barriers come in any order; the ends are counted, for an order left out would lack here."""
    topology = "3\nA 10\nB 10\nC 10\nA B\nB A\nB C\nC B\nA C\nC A\n"
    *found, summary = answers(
        run(
            "--json",
            "--exhaustive",
            "--protocol",
            protocol,
            topology=topology,
            events="send A B 1\nsnapshot A\nsend B C 1\n",
        )
    )
    assert summary["ends"] == ends
    assert summary["consistent"] is (protocol != "at-least-once-barrier")
    for one in found:
        total = sum(one["machines"].values()) + sum(message["tokens"] for message in one["messages"])
        assert total == 30 + sum(item["messages"] for item in one.get("duplicates", ()))


@pytest.mark.contract
def test_too_many_orders_are_refused_and_the_bound_is_the_users(run: Any) -> None:
    """All of them are 11 states: `test_every_order_is_tried_and_counted`."""
    events = "send N1 N2 2\ntick\nsnapshot N2\n"
    code, _, err = run("--exhaustive", "--most-states", "10", events=events)
    assert code == 2
    assert "more than 10 states" in err
    assert "give --most-states" in err
    assert run("--exhaustive", "--most-states", "11", events=events)[0] == 0


@pytest.mark.contract
def test_on_a_terminal_the_search_of_every_order_shows_how_far_it_is(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    events = "send N1 N2 1\n" * 4 + "snapshot N1\nsnapshot N2\n"
    silent = run("--exhaustive", "--most-states", "300", events=events)
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    _, lines, err = run("--exhaustive", "--most-states", "300", events=events)
    assert "every order: 0 states, 300 at most" in err
    assert "at most" not in silent[2]
    assert lines == silent[1]


@pytest.mark.contract
@pytest.mark.parametrize(
    ("arguments", "files", "told"),
    [
        ([], {}, "either --events or --schedule"),
        ([], {"events": "", "schedule": ""}, "either --events or --schedule"),
        (["--protocol", "token"], {"events": ""}, "no protocol 'token'; it has chandy-lamport, observer"),
        (["--seed", "1"], {"schedule": ""}, "a schedule leaves nothing to chance"),
        (["--exhaustive"], {"schedule": ""}, "a schedule leaves nothing to chance"),
        (["--most-states", "9"], {"events": ""}, "it goes with --exhaustive"),
        (["--exhaustive", "--seed", "1"], {"events": ""}, "it takes no --seed"),
        (["--seed", "one"], {"events": ""}, "--seed"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run: Any, arguments: list[str], files: Any, told: str) -> None:
    code, _, err = run(*arguments, **files)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.contract
@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_refused(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "topology"
    if content is not None:
        path.write_bytes(content)
    assert main(["simulate", "--topology", str(path), "--events", "events"]) == 2
    assert f"{path}: cannot be read" in capsys.readouterr().err


def _drawn(tmp_path: Path, *more: str) -> tuple[int, Path]:
    (tmp_path / "topology").write_text("2\nA 5\nB 5\nA B\nB A\n")
    (tmp_path / "events").write_text("send A B 1\nsnapshot B\nsend B A 2\nsnapshot A\n")
    files = ["--topology", str(tmp_path / "topology"), "--events", str(tmp_path / "events")]
    code = main(["simulate", *files, "--diagram", str(tmp_path / "run.svg"), *more])
    return code, tmp_path / "run.svg"


@pytest.mark.contract
def test_a_simulated_run_is_drawn_with_all_its_cuts_or_with_one(tmp_path: Path) -> None:
    code, svg = _drawn(tmp_path)
    assert code == 0
    assert svg.read_text().count('class="cut-label"') == 2
    assert svg.read_text().count("data-message=") == 2
    code, svg = _drawn(tmp_path, "--snapshot", "1")
    assert code == 0
    assert svg.read_text().count('class="cut-label"') == 2, "the run, and the equivalent computation"
    assert svg.read_text().count("snapshot 1</text>") == 2


@pytest.mark.contract
@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--snapshot", "7"], "--snapshot 7: this run took no snapshot of that number; there are 0, 1"),
        (["--exhaustive"], "--exhaustive is many runs"),
        (["--diagram", "/no/such/folder/run.svg"], "/no/such/folder/run.svg cannot be written"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_line(
    more: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = _drawn(tmp_path, *more)
    assert code == 2
    assert text in capsys.readouterr().err
