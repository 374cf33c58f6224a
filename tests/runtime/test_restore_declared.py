"""What was declared holds behind a restore: joins that lack a part, ports, channels that barriers align on."""

from typing import Any

import pytest
import ray

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.contract]


class Press(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.made: list[str] = []

    @rs.join("left", "right")
    def press(self, left: str, right: str) -> None:
        self.made.append(left + right)


class Feeder(rs.SnapshotMixin):
    def __init__(self, port: str) -> None:
        self.port = port

    def feed(self, what: str) -> None:
        getattr(self.machine("press"), self.port).send(what)


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", ["aligned-barrier", "chandy-lamport", "at-least-once-barrier"])
def test_half_a_join_waits_on_and_what_was_declared_is_declared_again(ray_cluster: None, protocol: str) -> None:
    with rs.System("presses", protocol=protocol, checkpoint=True, detectors=[]) as system:
        system.spawn(Press, name="press")
        sides: dict[str, Any] = {}
        for port in ("left", "right"):
            sides[port] = system.spawn(Feeder, port, name=f"feeder-{port}", role="source")
            system.connect(sides[port], "press", port=port)
        system.start()
        ray.get(sides["left"].feed.remote("a"))
        first = system.snapshot()
        while not first.machines["press"].waits_for:  # until it has come
            first = system.snapshot()
        for _ in range(2):
            assert first.restorable, first.obstacles
            system.restore(first)
            again = system.snapshot()
            press = again.machines["press"]
            assert (press.status, press.waits_for) == ("blocked", ("feeder-right",))
            assert [message.args for message in again.messages if message.target == "press"] == [["a"]]
            assert (press.alignment_ms is None) == (protocol == "chandy-lamport")
        sides["right"].feed.send("b")
        while (state := system.snapshot().machines["press"].state) == {"made": []}:
            pass
        assert state == {"made": ["ab"]}
