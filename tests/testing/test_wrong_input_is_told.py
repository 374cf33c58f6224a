"""What is given wrongly to `ray_snapshot.testing` is told in a sentence, and what is given is not changed."""

import functools
import json
from typing import Any

import explored_machines as machines
import pytest

import ray_snapshot as rs
from ray_snapshot import detectors, testing
from ray_snapshot.errors import ScheduleError, SettingError

pytestmark = pytest.mark.contract


class Gaussian(rs.SnapshotMixin):
    """Draws by a method of `random.Random` that keeps half of what it draws."""

    def __init__(self) -> None:
        self.drawn = 0

    def draw(self) -> None:
        self.random.gauss(0, 1)
        self.drawn += 1


def test_a_draw_leaves_nothing_behind_for_the_next_action() -> None:
    def build(system: Any) -> None:
        one = system.spawn(Gaussian, name="one")
        one.draw.send()
        one.draw.send()

    found = testing.explore(build)
    assert found.ok, str(found)
    assert found.states == 3
    run = testing.simulate(build, seed=1)
    assert testing.replay(build, run.schedule).steps == run.steps


@pytest.mark.parametrize("port", ["nothing", "no-name", ""])
def test_a_port_that_the_class_has_not_is_told(port: str) -> None:
    def build(system: Any) -> None:
        pair, one = system.spawn(machines.Pair, name="pair"), system.spawn(machines.Sender, name="one")
        system.connect(one, pair, "left")
        system.connect(one, pair, port)

    with pytest.raises(rs.RaySnapshotError, match=f"no port and no method '{port}'|name of a port"):
        testing.explore(build)


def test_machines_need_a_host_as_on_ray() -> None:
    with pytest.raises(rs.RaySnapshotError, match="per_host is 0"):
        testing.explore(lambda system: system.spawn_many(machines.Pair, count=2, per_host=0))


def _schedule(**changes: Any) -> dict[str, Any]:
    found = testing.explore(machines.throwing, never=[lambda states: states["die"].eyes == 3])
    assert found.counterexample is not None
    whole = json.loads(str(found.counterexample.schedule))
    return {**whole, **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": [5]},
        {"steps": ["driver"]},
        {"steps": [[]]},
        {"steps": [["driver", "driver", [], [], [["a"]]]]},
        {"steps": [["driver", "driver", [], ["x"], []]]},
        {"steps": [["accept", "die", ["driver", "mail"], [], []]]},
        {"settings": 7},
        {"settings": {"crashes": "x"}},
        {"loop_from": "x"},
        {"settings": {"protocol": "none"}},
        {"settings": {"protocol": "observer", "hosts": "x"}},
        {"settings": {"protocol": "observer"}, "steps": [["begin"]]},
        {"settings": {"protocol": "observer"}, "steps": [["begin", []], ["accept", []]]},
        {"settings": {"protocol": "observer"}, "steps": [["begin", []], ["deliver", 3, []]]},
        {"settings": {"protocol": "observer"}, "steps": [["begin", []], ["nothing", []]]},
        {"settings": {"protocol": "observer"}, "steps": [["begin", [1]]]},
    ],
)
def test_a_schedule_that_is_none_is_told(changes: dict[str, Any]) -> None:
    with pytest.raises((ScheduleError, SettingError)):
        testing.replay(machines.throwing, _schedule(**changes))


def test_an_outcome_of_chance_that_nobody_asks_for_is_told() -> None:
    schedule = _schedule()
    assert testing.replay(machines.throwing, schedule).machines["die"].eyes == 3
    schedule["steps"][-1][3].append(1)
    with pytest.raises(ScheduleError, match="1 outcomes of chance that no machine asks for"):
        testing.replay(machines.throwing, schedule)


@pytest.mark.parametrize("setting", [{"snapshots": -1}, {"crashes": -1}, {"most_steps": 0}])
def test_a_run_takes_no_fewer_than_nothing(setting: dict[str, int]) -> None:
    with pytest.raises(SettingError, match=next(iter(setting))):
        testing.simulate(machines.bank, **setting)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"crashes": -1}, "crashes=-1"),
        ({"workers": 2}, "one process searches"),
        ({"workers": 0}, "one process searches"),
        ({"most_states": 0}, "most_states=0"),
    ],
)
def test_a_setting_that_is_none_is_told(setting: dict[str, int], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        testing.explore(machines.bank, **setting)  # type: ignore[arg-type]


class Looking:
    def rich(self, states: Any) -> bool:
        return bool(states["a"].balance > 0)


def test_over_takes_whatever_can_be_called_and_leaves_it_as_it_was() -> None:
    look = Looking().rich
    partial = functools.partial(Looking.rich, Looking())
    for function in (look, partial):
        found = testing.explore(machines.bank, always=[testing.over("a")(function)])
        assert found.complete, str(found)

    def reads_both(states: Any) -> bool:
        return bool(states["a"].balance + states["b"].balance)

    testing.over("a")(reads_both)
    assert testing.explore(machines.bank, always=[reads_both]).complete, "it has not said anything itself"
    for wrong in (5, detectors.Termination()):
        with pytest.raises(SettingError, match="a function of the machine objects"):
            testing.over("a")(wrong)  # type: ignore[type-var]
    with pytest.raises(SettingError, match="the names of the machines"):
        testing.over()


def test_as_many_states_as_there_are_is_enough() -> None:
    assert testing.explore(machines.bank, most_states=9).complete
    found = testing.explore(machines.bank, most_states=8)
    assert (found.complete, found.states) == (False, 8)
    assert testing.explore(machines.bank, most_states=1).states == 1
