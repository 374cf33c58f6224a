"""Joins: what is enabled, who is chosen, and what a machine waits for whose joins are not enabled."""

import random
from collections import Counter, deque
from itertools import permutations, product
from typing import Any

import pytest
from nets import Net

from ray_snapshot.protocol import joins
from ray_snapshot.protocol.joins import Inputs, cover, half_begun, run_of, waiting_of
from ray_snapshot.protocol.mailbox import MAIL, Inbox, Mailbox
from ray_snapshot.waits import Alternative


def fed(patterns: tuple[tuple[str, ...], ...], ports: dict[str, str], count: int) -> Net:
    """Machine j with `count` messages from each source, all for one port."""
    net = Net(dict.fromkeys([*ports, "j"], "A"), joins=patterns)
    for number in range(count):
        for source, port in ports.items():
            net.send(source, "j", f"{port}{number}", port)
    return net


def taken(net: Net, count: int) -> list[str]:
    """The ports of each action, as one text."""
    return ["+".join(str(one).rstrip("0123456789") for one in net.act("A")[1]) for _ in range(count)]  # type: ignore[index]


# ---- which are enabled, and who is chosen ------------------------------------------------------------------------------


def test_a_join_of_many_ports_does_not_starve_behind_those_of_few() -> None:
    net = fed((("a", "b"), ("a", "c"), ("a", "b", "c")), {"s": "a", "t": "b", "u": "c"}, 40)
    assert min(Counter(taken(net, 30)).values()) == 10


def test_joins_and_plain_methods_take_turns_however_much_there_is_of_either() -> None:
    net = fed((("a", "b"), ("c", "d")), {"s": "a", "t": "b", "u": "c", "v": "d", "w": "plain"}, 40)
    found = taken(net, 40)
    assert all({"a+b", "c+d", "plain"} == set(found[at : at + 4]) for at in range(0, 36))


def _can_fire(patterns: Any, queues: list[list[str]]) -> bool:
    """By trying everything: a pattern of which each channel gives some of its front."""
    for ports in patterns:
        for sizes in product(*(range(min(len(queue), len(ports)) + 1) for queue in queues)):
            found = [port for queue, size in zip(queues, sizes, strict=True) for port in queue[:size]]
            if sorted(found) == sorted(ports):
                return True
    return False


@pytest.mark.parametrize("block", range(4))
def test_an_action_is_taken_exactly_where_one_is_possible(block: int) -> None:
    for seed in range(block * 300, (block + 1) * 300):
        chance = random.Random(seed)
        patterns = chance.choice(
            [
                (("a", "b"),),
                (("a", "b"), ("a", "c")),
                (("a", "b", "c"),),
                (("a", "b"), ("b", "c"), ("a", "b", "c", "d")),
            ]
        )
        inbox = Inbox(patterns)
        queues: list[list[str]] = [[] for _ in range(3)]
        for step in range(40):
            if chance.random() < 0.6:
                source = chance.randrange(3)
                method = chance.choice("aabbccd"[: 2 + 2 * len({port for ports in patterns for port in ports})])
                queues[source].append(method)
                mailbox = inbox.mailbox(f"m{source}", MAIL)
                inbox.put(mailbox, (0, mailbox.arrived + 1, method, None, 0.0, 0))
                continue
            joined = {port for ports in patterns for port in ports}
            plain = any(queue and queue[0] not in joined for queue in queues)
            found = inbox.take()
            assert (found is not None) == (plain or _can_fire(patterns, queues)), f"seed {seed}, step {step}: {queues}"
            for box in dict.fromkeys(box for box, _ in found or ()):
                methods = [message[2] for other, message in found or () if other is box]
                queue = queues[int(box.source[1:])]
                assert sorted(queue[: len(methods)]) == sorted(methods), f"seed {seed}, step {step}"
                del queue[: len(methods)]


def test_every_source_of_a_port_is_served() -> None:
    inbox = Inbox((("a", "b"), ("b", "c")))
    boxes = {name: inbox.mailbox(name, MAIL) for name in ("a0", "a1", "a2", "b0", "c0")}
    served: Counter[str] = Counter()
    for _ in range(60):
        for name, box in boxes.items():
            _keep_full(inbox, box, name[0])
        served.update(box.source for box, _ in inbox.take() or ())
    assert min(served[name] for name in ("a0", "a1", "a2")) == 10
    assert served["c0"] == 30


def _keep_full(inbox: Inbox, box: Mailbox, method: str) -> None:
    while len(box.queue) < 3:
        inbox.put(box, (0, box.arrived + 1, method, None, 0.0, 0))


# ---- what a machine waits for --------------------------------------------------------------------------------------------

BOTH = Inputs((("left", "right"),), {"left": ("a",), "right": ("b", "c")})


def wait(inputs: Inputs, *channels: list[str]) -> list[tuple[int, tuple[str, ...]]] | None:
    found = waiting_of(inputs, channels)
    return None if found is None else [(one.k, one.on) for one in found.wait.alternatives]


def test_of_a_pattern_it_waits_for_every_missing_port_and_for_any_source_of_each() -> None:
    assert wait(BOTH) == [(2, ("a", "b")), (2, ("a", "c"))]
    assert wait(BOTH, ["left"]) == [(1, ("b", "c"))]
    assert wait(BOTH, ["right"]) == [(1, ("a",))]


def test_what_it_lacks_is_said_of_the_patterns_of_which_a_part_is_there() -> None:
    assert waiting_of(BOTH, []).lacking == ()  # type: ignore[union-attr]
    assert waiting_of(BOTH, [["left"]]).lacking == ((("left", "right"), ("right",)),)  # type: ignore[union-attr]


def test_a_message_of_another_port_does_not_count_and_one_of_a_plain_method_lets_it_act() -> None:
    inputs = Inputs((("left", "right"), ("up", "down")), dict.fromkeys(("left", "right", "up", "down"), ("a",)))
    assert wait(inputs, ["left"], ["up"]) == [(1, ("a",))]
    assert wait(BOTH, ["left"], ["poke"]) is None
    assert wait(BOTH, ["left", "poke"]) == [(1, ("b", "c"))], "poke is behind a message that cannot be taken"


@pytest.mark.parametrize("sources", [{}, {"left": ("a",)}, {"right": ("b",), "left": ()}])
def test_a_missing_port_without_a_declared_source_makes_the_wait_unknown(sources: dict[str, Any]) -> None:
    assert wait(Inputs((("left", "right"),), sources)) is None


def test_a_port_that_is_there_needs_no_declared_source() -> None:
    assert wait(Inputs((("left", "right"),), {"right": ("b",)}), ["left"]) == [(1, ("b",))]


def test_past_the_bound_the_ports_with_most_sources_are_left_out() -> None:
    many = tuple(f"m{number}" for number in range(joins.MOST_ALTERNATIVES))
    inputs = Inputs((("p", "q", "r"),), {"p": many, "q": ("a",), "r": ("b", "c")})
    found = waiting_of(inputs, [])
    assert found is not None
    assert found.wait.alternatives == (Alternative(2, ("a", "b")), Alternative(2, ("a", "c")))
    assert wait(Inputs((("p", "q"),), {"p": (*many, "n"), "q": (*many, "n")}))[0][0] == 1  # type: ignore[index]


def test_where_each_port_is_there_but_not_all_together_it_waits_for_any_source() -> None:
    ports = ("a", "b", "c")
    inputs = Inputs((ports,), {port: (f"from {port}",) for port in ports})
    assert wait(inputs, ["a", "b"], ["a", "c"]) == [(1, ("from a", "from b", "from c"))]


def test_a_cover_takes_each_port_once_and_only_what_is_in_front() -> None:
    for queues in product([list(one) for size in range(3) for one in permutations("abc", size)], repeat=3):
        runs = {}
        for number, queue in enumerate(queues):
            run = run_of(queue, ("a", "b", "c"))
            runs.update({run[:size]: number for size in range(1, len(run) + 1)})
        found = cover(("a", "b", "c"), runs)
        assert (found is not None) == _can_fire([("a", "b", "c")], list(queues)), queues
        left = [deque(queue) for queue in queues]
        assert [left[number].popleft() for _, number in found or ()] == [port for port, _ in found or ()]


def test_half_a_join_is_told_also_where_nobody_is_declared_but_not_where_anything_can_be_accepted() -> None:
    nobody = Inputs((("left", "right"), ("up", "down")), {})
    assert waiting_of(nobody, [["left"]]) is None
    assert half_begun(nobody, [["left"]]) == ((("left", "right"), ("right",)),)
    assert half_begun(nobody, [["left"], ["down"]]) == ((("left", "right"), ("right",)), (("up", "down"), ("up",)))
    for able in ([["left", "right"]], [["left"], ["right"]], [["left"], ["plain"]], []):
        assert half_begun(nobody, able) == ()
