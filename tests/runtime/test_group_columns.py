"""What a report holds of machines that were copied together, and of channels by their two ends, is what each by itself says."""

import pickle
import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ray_snapshot import MachineHandle, columns
from ray_snapshot.columns import Columns, inner, lean, packed, unpacked, unspread
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.host import HostCore, Machine, Recording
from ray_snapshot.protocol.mailbox import MAIL
from ray_snapshot.runtime import joined_ends
from ray_snapshot.runtime.ends import ENDS, OWNED
from ray_snapshot.runtime.host.resting import RestingRows, Rows
from ray_snapshot.runtime.payload import isolate
from ray_snapshot.runtime.report import BodyCopies, Facts, host_payload, late_payload
from ray_snapshot.runtime.rows import END_ROW
from ray_snapshot.schema import CHANNELS, MACHINES
from ray_snapshot.shapes import shape_of

KINDS = [type(name, (), {}) for name in ("Bank", "Shop")]
ARGS: list[tuple[Any, ...]] = [
    (),
    (1, "a"),
    (2.5, None, True),
    ("é",),
    ('"],["', "%s"),
    (float("nan"),),
    (b"bytes", 1),
    ([1, 2],),
    (MachineHandle("run", "m", None),),
    (2**60,),
]


def copied(machines: Sequence[Machine], _may_rest: Any) -> tuple[Sequence[Machine], BodyCopies, list[bool]]:
    kind = type(machines[0].body)
    shape = shape_of(kind, {"n": 1})
    texts = [f'{{"n":{machine.sent}}}' for machine in machines]
    return machines, BodyCopies(kind.__name__, texts, shape), [False] * len(machines)


def recorded(seed: int) -> Recording:
    """Machines that send to one another, to another host, to nobody yet and to themselves later; some accept, some do not."""
    chance = random.Random(seed)
    core = HostCore("here", copy_group=copied, copy_body=lambda machine: next(iter(copied([machine], None)[1])))
    names = [f"m{number}" for number in range(chance.randrange(2, 30))]
    for name in names:
        core.born(name, chance.choice(KINDS[: 1 + seed % 2])())
    core.resolve("far", "there")
    plain = seed % 3 == 0
    for _ in range(chance.randrange(60)):
        machine, target = core.machines[chance.choice(names)], chance.choice([*names, "far", "unknown"])
        args = ARGS[1] if plain else chance.choice(ARGS)
        if chance.random() < 0.1 and not plain:
            core.set_timer(machine, target, "m", (9.0, isolate("a", "b", "m", args, {})), 0.5, 9.0)
        else:
            core.send(machine, target, MAIL, chance.choice(["m", "n"]), isolate("a", "b", "m", args, {}), 1.25)
        if chance.random() < 0.4:
            core.next_action()
    core.request(1)
    core.boundary()
    core.send(core.machines[names[0]], names[-1], MAIL, "red", (), 2.0)  # copied before it, and not in the snapshot
    while core.copy_next(chance.choice([4, 128])):
        pass
    return core.open[1]


def told(recording: Recording) -> Any:
    """The report of a recording, in one order."""
    payload = host_payload("here", recording, Facts(7.0, 1))
    part = pickle.loads(payload.part)
    columns = {"machines": part.machines, "ends": part.table_of_ends, "messages": part.messages}
    tables = {name: sorted(map(repr, table.to_pylist())) for name, table in columns.items()}
    in_order = defaultdict[Any, list[int]](list)
    for row in part.messages.to_pylist():
        in_order[row["source"], row["target"], row["kind"]].append(row["number"])
    is_in_order = all(numbers == sorted(numbers) for numbers in in_order.values())
    schemas = [table.schema for table in columns.values()]
    lists = sorted(part.shapes), part.inputs, part.obstacles, part.without_state
    return payload.counts, tables, schemas, *lists, is_in_order


def one_by_one(recording: Recording) -> Recording:
    found = Recording(recording.number)
    found.copies = [*recording.each_copy()]
    return found


@pytest.mark.parametrize(
    "times", [pytest.param(60, id="few"), pytest.param(3_000, id="many", marks=pytest.mark.nightly)]
)
def test_together_as_one_by_one(times: int, seed: int) -> None:
    in_flight = groups = 0
    for number in range(seed, seed + times):
        recording = recorded(number)
        groups += len(recording.groups)
        found = told(recording)
        assert found == told(one_by_one(recording)), f"pytest --seed {number}"
        assert found[-1], f"pytest --seed {number}"
        in_flight += len(found[1]["messages"])
    assert in_flight > 5 * times
    assert groups > times


def test_late_messages_of_several_channels_stay_in_their_order() -> None:
    core = HostCore("here")
    machine, *senders = (core.born(name, object()) for name in ("m", "s", "o"))
    box, other = (core.channel(sender, "m", MAIL).way for sender in senders)
    order = [(box, 1), (box, 2), (other, 1), (box, 3)]
    late: Any = [(one, machine, (0, number, "m", (number,), 1.5, 0)) for one, number in order]
    part = pickle.loads(late_payload("here", Recording(1), Facts(7.0, 1), late, ()).part)
    told = [(row["source"], row["number"], row["args"]) for row in part.messages.to_pylist()]
    assert told == [("s", 1, "[1]"), ("s", 2, "[2]"), ("o", 1, "[1]"), ("s", 3, "[3]")]
    assert [(row["source"], row["in_flight"]) for row in part.table_of_ends.to_pylist()] == [
        ("s", 2),
        ("o", 1),
        ("s", 1),
    ]


NAMES = st.sampled_from(["a", "b", "é", ""])
COUNTS = st.sampled_from([0, 0, 1, 2, 2**53, 2**53 + 1, 2**57, -1])  # of a channel there may be 36, within 64 bits
ROW = st.tuples(NAMES, NAMES, st.sampled_from(["mail", "call"]), *[COUNTS] * 5)
Row = tuple[Any, ...]


def joined(parts: list[list[Row]]) -> list[dict[str, Any]]:
    """The rows of channels, an end at a time."""
    sums: dict[Row, list[int]] = {}
    for row in (row for part in parts for row in part):
        found = sums.setdefault(row[:3], [0] * 5)
        found[:] = [one + more for one, more in zip(found, row[3:], strict=True)]
    rows = []
    for (source, target, kind), (sent, accepted, in_flight, held, duplicates) in sums.items():
        row = dict.fromkeys(inner(CHANNELS).names, 0)
        row |= {"source": source, "target": target, "kind": kind, "sent_count": sent, "accepted_count": accepted}
        row |= {"in_flight_count": in_flight + held, "duplicate_count": duplicates}
        rows.append({**row, "recorded_by": "sender" if held > 0 else "marker"})
    return rows


def sent(part: list[Row]) -> list[Columns]:
    """As a part brings it: its names are its own, and a column of one value has one row."""
    made = pa.Table.from_pylist([dict(zip(END_ROW, row, strict=True)) for row in part], schema=ENDS)
    return unspread(pickle.loads(pickle.dumps(lean(made), protocol=5)))


def found_in(parts: list[list[Row]]) -> list[dict[str, Any]]:
    """What is made of these parts; of one source all channels stand together."""
    found = joined_ends.joined_ends(chain.from_iterable(map(sent, parts)), "marker")
    assert found.schema == inner(CHANNELS)
    sources = [name for name, _ in groupby(found["source"].to_pylist())]
    assert len(sources) == len({*sources})
    return in_order(found.to_pylist())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["source"], row["target"], row["kind"]))


@pytest.mark.parametrize("least", [1, 1_000], ids=["lean", "plain"])
@given(parts=st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=3))
@example(
    parts=[[("a", "b", "mail", 2**53, 0, 0, 0, 0)], [("b", "a", "mail", *[0] * 5), ("a", "b", "mail", 1, 0, 0, 0, 0)]]
)
@example(parts=[[("b", "a", "call", 1, 0, 0, 0, 0)], [("a", "b", "mail", 0, 1, 0, 0, 0)]])
@example(parts=[[("a", "b", "mail", 1, 2, 3, 4, 5)] * 2, []])
def test_a_channel_is_what_both_ends_say(least: int, parts: list[list[Row]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "LEAST_LEAN", least)
        assert found_in(parts) == in_order(joined(parts))


@pytest.mark.parametrize("left", [0, 1, 7])
@pytest.mark.parametrize("pieces", [1, 3])
def test_names_of_machines_that_rest_no_more_are_not_sent(left: int, pieces: int) -> None:
    names = [f"m{number}" for number in range(3 * LIMITS.spare_names)]
    rows = RestingRows("h")
    rows.shapes = dict.fromkeys(names)
    rows.machines = Rows(pa.Table.from_pylist([{"machine": name} for name in names], schema=inner(MACHINES)))
    given = [{**dict(zip(END_ROW, (name, "b", "mail", 3, 0, 0, 0, 0), strict=True)), "owner": name} for name in names]
    made = pa.Table.from_pylist(given, schema=OWNED)
    size = len(names) // pieces
    rows.ends = pa.concat_tables([unpacked(packed(made.slice(at * size, size))) for at in range(pieces)])
    for shown in (rows.beside(names[left:]).ends, (rows.forget(names[left:]), rows.ends)[1]):
        assert shown.to_pylist() == made.select(shown.column_names)[:left].to_pylist()
        assert shown.schema.equals(ENDS if "owner" not in shown.column_names else OWNED)
        assert packed(shown).size < packed(made.select(shown.column_names)).size / 10
