"""Space-time diagrams and vector clocks of simulated and invented runs."""

import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_snapshot.cli import main
from ray_snapshot.protocol.choosing import PROTOCOLS
from ray_snapshot.reports.runs import simulated_cuts, simulated_events, vector_clocks
from ray_snapshot.simulation.tokens.playing import play_events
from ray_snapshot.simulation.tokens.scripts import Script, SendTokens, StartSnapshot, Tick, Topology
from ray_snapshot.views.space_time import RADIUS, Control, Cut, Event, diagram, panel, stacked

NAMES = ("N1", "N2", "N3", "N4")


def simulated(seed: int, steps: int = 30) -> tuple[list[Event], list[Cut]]:
    """A run of four machines by seed, with two snapshots."""
    chance = random.Random(seed)
    topology = Topology(dict.fromkeys(NAMES, 50), dict.fromkeys((a, b) for a in NAMES for b in NAMES if a != b))
    operations = []
    for step in range(steps):
        if step in (8, 15):
            operations.append(StartSnapshot(step, (chance.choice(NAMES),)))
        source, target = chance.sample(NAMES, 2)
        operations += [SendTokens(step, source, target, 1), Tick(step, chance.randrange(2))]
    log = play_events(topology, Script("script", operations), seed).system.log
    return simulated_events(log), simulated_cuts(log, NAMES, None)


def drawn(svg: str) -> Iterator[ET.Element]:
    """The elements of a diagram, its legend left out."""
    (picture,) = (part for part in ET.fromstring(svg) if part.get("class") == "panel")
    return picture.iter()


def of_class(svg: str, word: str) -> list[ET.Element]:
    return [element for element in drawn(svg) if word in (element.get("class") or "").split()]


def ends_of(arrow: ET.Element) -> list[tuple[float, float]]:
    numbers = [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", arrow.get("d") or "")]
    return [(numbers[0], numbers[1]), (numbers[-2], numbers[-1])]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("equivalent", [False, True])
def test_every_message_is_an_arrow_from_its_sending_to_its_accepting_action(seed: int, equivalent: bool) -> None:
    events, cuts = simulated(seed)
    svg = diagram(events, cuts, equivalent=equivalent)
    dots = {}
    for group in drawn(svg):
        circle, title = group.find("{*}circle"), group.find("{*}title")
        if circle is not None and title is not None and "action" in (circle.get("class") or ""):
            machine, number = str(title.text).split(":")[0].split()
            dots[machine, int(number)] = float(circle.get("cx") or 0), float(circle.get("cy") or 0)
    senders = {message: (event.machine, event.number) for event in events for message in event.sent}
    acceptors = {message: (event.machine, event.number) for event in events for message in event.accepted}

    arrows = of_class(svg, "message")

    assert len(dots) == len(events)
    assert len(arrows) == len(senders)
    for arrow in arrows:
        source, target, kind, number = str(arrow.get("data-message")).split(":")
        key = source, target, kind, int(number)
        begin, end = dots[senders[key]], dots[acceptors[key]]
        (x1, y1), (x2, y2) = ends_of(arrow)
        assert x1 < x2, "time goes to the right"
        assert abs(x1 - begin[0]) <= RADIUS + 0.1
        assert abs(y1 - begin[1]) <= RADIUS + 0.1
        assert abs(x2 - end[0]) <= RADIUS + 1.1
        assert abs(y2 - end[1]) <= RADIUS + 1.1


@pytest.mark.parametrize("seed", range(5))
def test_colours_and_messages_in_flight_are_those_of_the_first_cut(seed: int) -> None:
    events, cuts = simulated(seed)
    svg = diagram(events, cuts)
    accepted_red = {m for event in events if event.number > cuts[0].counts[event.machine] for m in event.accepted}
    sent_white = {m for event in events if event.number <= cuts[0].counts[event.machine] for m in event.sent}

    in_flight = {str(arrow.get("data-message")) for arrow in of_class(svg, "in-flight")}

    assert in_flight == {":".join(map(str, message)) for message in accepted_red & sent_white}
    assert len(of_class(svg, "red")) == sum(event.number > cuts[0].counts[event.machine] for event in events)


@pytest.mark.parametrize("equivalent", [False, True])
def test_a_cut_passes_each_machine_between_its_last_white_and_its_first_red_action(equivalent: bool) -> None:
    events, cuts = simulated(3)
    svg = diagram(events, cuts[:1], equivalent=equivalent)
    points = [float(point.get("x") or 0) + 3 for point in of_class(svg, "point")]
    heights = [float(point.get("y") or 0) + 3 for point in of_class(svg, "point")]
    circles = of_class(svg, "action")

    assert len(points) == len(NAMES)
    for x, y in zip(points, heights, strict=True):
        lane = [circle for circle in circles if abs(float(circle.get("cy") or 0) - y) < 0.2]
        assert lane
        for circle in lane:
            is_red = "red" in str(circle.get("class"))
            assert (float(circle.get("cx") or 0) > x) is is_red
    if equivalent:
        assert max(points) - min(points) < 0.2, "in the equivalent computation all machines record at once"


def test_what_nobody_accepts_ends_in_an_open_arrow_on_the_line_of_its_target() -> None:
    svg = diagram([Event("a", 1, (), (("a", "b", "mail", 1), ("a", "a", "timer", 1))), Event("b", 1)])

    assert [str(arrow.get("data-message")) for arrow in of_class(svg, "open")] == ["a:b:mail:1", "a:a:timer:1"]
    lanes = [float(lane.get("y1") or 0) for lane in of_class(svg, "lane")]
    assert [ends_of(arrow)[1][1] for arrow in of_class(svg, "open")] == lanes[::-1]


def test_a_long_run_shows_a_window_around_the_cut_and_says_so() -> None:
    events = [Event("ab"[n % 2], n // 2 + 1) for n in range(2_000)]
    cut = Cut("snapshot 1", {"a": 500, "b": 490})

    svg = diagram(events, [cut], title="A run", most_events=200)

    shown = [str(title.text) for title in drawn(svg) if title.tag.endswith("title")]
    assert len(shown) == 200
    assert {"a 500", "a 501", "b 490", "b 491"} <= set(shown)
    assert "A run (200 of 2000 actions, around the cut)" in svg


def test_a_message_that_leaves_the_window_does_not_look_as_if_nobody_accepted_it() -> None:
    events = [Event("a", 1, (), (("a", "b", "mail", 1), ("a", "b", "mail", 2)))]
    events += [Event("c", number) for number in range(1, 50)]
    events += [Event("b", 1, (("a", "b", "mail", 1),))]

    svg = diagram(events, [Cut("snapshot 1", {"a": 1, "b": 0, "c": 0})], most_events=20, most_machines=3)

    assert [str(arrow.get("data-message")) for arrow in of_class(svg, "leaving")] == ["a:b:mail:1"]
    assert [str(arrow.get("data-message")) for arrow in of_class(svg, "open")] == ["a:b:mail:2"]


def test_thirty_machines_are_drawn_and_of_more_the_busiest() -> None:
    events = [Event(f"m-{n % 40}", n // 40 + 1) for n in range(60)]

    svg = diagram(events, most_machines=30)

    assert len(of_class(svg, "lane")) == 30
    assert "the 30 busiest of 40 machines" in svg


def test_names_are_escaped_and_control_messages_are_dashed() -> None:
    events = [Event("a", 1, label="<&>"), Event("b", 1)]

    svg = diagram(events, control=[Control("a", 1, "b", 0, "marker <1>")], title='"<&>"')

    assert len(of_class(svg, "control")) == 1


def test_several_drawings_stand_below_each_other() -> None:
    svg = stacked([panel([Event("a", 1)], title="one"), panel([Event("a", 1)], title="two")])

    assert len([part for part in ET.fromstring(svg) if part.get("class") == "panel"]) == 2


@pytest.mark.parametrize("seed", range(5))
def test_vector_clocks_say_exactly_what_happened_before_what(seed: int) -> None:
    events, _ = simulated(seed)
    clocks, before = vector_clocks(events), happened_before(events)
    for event in events:
        known = [(other.machine, other.number) for other in events if (other, event) in before or other is event]
        assert clocks[event.machine, event.number] == {
            machine: max(n for name, n in known if name == machine) for machine in {name for name, _ in known}
        }


def happened_before(events: list[Event]) -> set[tuple[Event, Event]]:
    """Lamport's relation, by its definition."""
    edges = {(a, b) for a in events for b in events if a.machine == b.machine and a.number < b.number}
    edges |= {(a, b) for a in events for b in events if set(a.sent) & set(b.accepted)}
    for middle in events:
        ahead = [a for a, b in edges if b == middle]
        behind = [b for a, b in edges if a == middle]
        edges |= {(a, b) for a in ahead for b in behind}
    return edges


@pytest.mark.contract
def test_the_picture_of_the_page_is_what_the_command_below_it_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = Path(__file__).parents[2] / "docs"
    command = re.findall(r"`ray-snapshot (simulate .*?)`", (docs / "howto" / "witness.md").read_text(), re.DOTALL)[0]
    *arguments, image = command.split()
    monkeypatch.chdir(docs / "images")
    assert main([*arguments, str(tmp_path / image)]) == 0
    assert (tmp_path / image).read_text() == (docs / "images" / image).read_text()


def test_a_legend_names_what_is_there_and_nothing_else() -> None:
    found = re.findall(
        r'class="legend".*?<text[^>]*>([^<]*)', diagram([Event("a", 1, (), (("a", "b", "mail", 1),)), Event("b", 1)])
    )
    assert found == ["action", "not accepted"]
    assert "marker, barrier, request" not in diagram(*simulated(1))


def test_a_dot_has_the_number_of_the_text_and_its_method_where_there_is_room() -> None:
    crowd = [Event("b", number, mark=str(number + 2), method="a_rather_long_name") for number in range(1, 60)]
    svg = diagram([Event("a", 1, mark="3.2", method="deposit"), *crowd])
    texts = {str(text.text) for text in of_class(svg, "number")}
    assert {"3.2 deposit", "3", "61"} <= texts


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_run_is_drawn_under_every_protocol(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pictures of docs/howto/protocols.md; only where alignment is skipped is there no equivalent computation."""
    images = Path(__file__).parents[2] / "docs" / "images"
    monkeypatch.chdir(images)
    files = ["--topology", "three-machines.topology", "--events", "three-machines.events"]
    drawn = tmp_path / "drawn.svg"

    assert (
        main(["simulate", *files, "--seed", "1", "--snapshot", "0", "--protocol", protocol, "--diagram", str(drawn)])
        == 0
    )
    assert drawn.read_text() == (images / f"{protocol}.svg").read_text()
    assert "marker, barrier, request" in drawn.read_text(), "the legend has every kind of arrow"
    assert ("equivalent computation" in drawn.read_text()) is (protocol != "at-least-once-barrier")
