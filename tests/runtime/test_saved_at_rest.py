"""What checkpoints keep of machines at rest: the table of a section, whatever has been put to rest and woken before."""

import pickle
import random
from typing import Any

from resting import Program, resting_host

import ray_snapshot as rs
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime.checkpointing import Section
from ray_snapshot.runtime.host.resting import Rows
from ray_snapshot.runtime.planning import gathered, opened_section
from ray_snapshot.runtime.saved_machines import saved_table

MANY = 3 * LIMITS.resting_chunks


def test_a_section_has_each_machine_at_rest_once_and_as_it_was_last(seed: int) -> None:
    """Batches of unlike classes, of which columns are put together anew now and then."""
    chance = random.Random(seed)
    rows, expected = Rows(saved_table(())), dict[str, Any]()
    for turn in range(MANY):
        woken = {name for name in expected if chance.random() < 0.1}
        rows = rows.without("machine", woken).compact()
        expected = {name: saved for name, saved in expected.items() if name not in woken}
        batch = [
            (f"m{number}", f"class {chance.randrange(turn + 1)}", chance.randbytes(5), chance.random() < 0.5)
            for number in range(60)
            if f"m{number}" not in expected and chance.random() < 0.3
        ]
        rows = rows.plus(saved_table(batch))
        expected |= {saved[0]: saved for saved in batch}
        awake = ("busy", "class 0", b"\0", False)
        section = Section("host-0", [awake], at_rest=rows.table()).dumps()
        host, machines, *_ = opened_section(section)
        assert (host, sorted(machines)) == ("host-0", sorted([awake, *expected.values()])), f"pytest --seed {seed}"


def test_a_section_without_machines_at_rest_is_as_it_ever_was() -> None:
    """So checkpoints of before can be restored."""
    machine = ("a", "key", b"state", False)
    older = pickle.dumps(("host-0", [machine], [], [], {"key": b"class"}))
    assert Section("host-0", [machine], classes={"key": b"class"}).dumps() == pickle.dumps(pickle.loads(older), 5)
    whole = gathered([older])
    assert (whole.machines, whole.hosts) == ([machine], {"a": "host-0"})


def test_ten_thousand_machines_at_rest_are_a_few_buffers() -> None:
    states = [pickle.dumps({"number": number}, protocol=5) for number in range(10_000)]
    names = [f"account-{number}" for number in range(10_000)]
    table = saved_table([(name, "k" * 64, state, False) for name, state in zip(names, states, strict=True)])
    assert table.nbytes < sum(map(len, names)) + sum(map(len, states)) + 10_000 * 17


class Two(rs.SnapshotMixin):
    """Has an attribute that may stand for the handle of an actor; 0: of none."""

    def __init__(self, held: int) -> None:
        self.held = held

    def hold(self, held: int) -> None:
        self.held = held


class Watch:
    """What a host knows of watched actors, as far as it copies: a state may have a name for the handle of one."""

    is_making = False

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.version = 0
        """What it knows of the actors."""

    def keep(self, machine: Machine, state: Any) -> tuple[bytes, None]:
        self.names[machine.name] = state["held"]
        return pickle.dumps((state, self.version if state["held"] else 0)), None

    def is_named(self, machine: Machine) -> bool:
        return bool(self.names[machine.name])

    def recorded(self, numbers: Any) -> None:
        """The host has turned red."""

    def ended(self, machine: Machine) -> None:
        """An action is over."""

    def forget(self, number: int) -> None:
        """A snapshot is over."""

    def part(self, number: int) -> None:
        """Nothing of calls."""

    def call_again(self) -> None:
        """There are none."""


def test_beside_watched_actors_those_rest_whose_states_have_no_handle_of_one() -> None:
    with resting_host(checkpoint=True) as host:
        watch: Any = Watch()
        host.post.join(watch)
        program = Program(host)
        program.run([("spawn", 0, Two), ("spawn", 1, Two), ("snapshot",), ("snapshot",)])
        watch.version = 1
        rows = program.run([("snapshot",)])
        assert {*host.post.at_rest.rows.shapes} == {"m0"}
        kept = [{name: pickle.loads(blob) for name, _, blob, _ in row["kept"]} for row in rows]
        assert [one["m0"] for one in kept] == [({"held": 0}, 0)] * 3
        assert [one["m1"][1] for one in kept] == [0, 0, 1]
        program.run([("send", 0, "hold", 2), ("send", 1, "hold", 0), *[("snapshot",)] * 3])
        assert {*host.post.at_rest.rows.shapes} == {"m1"}
