"""Who waits for whom as boxes and arrows, and their drawing."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from ray_snapshot.views import wait_svg
from ray_snapshot.views.wait_picture import BEHIND, CALLERS, CORE, MOST_BOXES, OTHER, WAITS, Picture, picture

SVG = "{http://www.w3.org/2000/svg}"


def wait(machine: str, *on: str, **more: Any) -> dict[str, Any]:
    return {"machine": machine, "class": "A", "method": "ask", "call_site": "app.py:7", "waits_for": list(on), **more}


def ring(count: int) -> list[dict[str, Any]]:
    return [wait(f"m{row}", f"m{(row + 1) % count}") for row in range(count)]


def named(found: Picture) -> dict[str, tuple[str, int]]:
    return {box.title: (box.kind, box.distance) for box in found.boxes}


def test_the_core_is_nearest_and_what_is_stuck_behind_it_further_wait_by_wait() -> None:
    found = picture(
        [wait("a", "b"), wait("b", "a")], [wait("c", "a"), wait("d", "c"), wait("e", "d", "b")], [["a", "b"]]
    )
    assert named(found) == {"a": (CORE, 0), "b": (CORE, 0), "c": (BEHIND, 1), "d": (BEHIND, 2), "e": (BEHIND, 1)}
    arrows = {(found.boxes[arrow.source].title, found.boxes[arrow.target].title) for arrow in found.arrows}
    assert arrows == {("a", "b"), ("b", "a"), ("c", "a"), ("d", "c"), ("e", "d"), ("e", "b")}


def test_what_a_core_waits_for_that_is_none_of_it_stands_on_the_other_side() -> None:
    assert named(picture([wait("a", "stopped")], [], [["a"]])) == {"a": (CORE, 0), "stopped": (OTHER, -1)}


def test_without_a_core_the_nearest_is_what_waits_for_nothing() -> None:
    assert named(picture([], [wait("a", "b"), wait("b", "c")])) == {"a": (WAITS, 2), "b": (WAITS, 1), "c": (OTHER, 0)}


def test_round_a_ring_each_waits_for_the_next() -> None:
    order = [3, 1, 4, 0, 2]
    rows = [ring(5)[row] for row in order]
    found = picture(rows, [], [[f"m{row}" for row in range(5)]])
    titles = [box.title for box in found.boxes]
    begin = titles.index("m0")
    assert titles[begin:] + titles[:begin] == [f"m{row}" for row in range(5)]


def test_calls_of_one_machine_are_one_box_with_how_many_wait_where() -> None:
    rows = [wait("a", "b"), wait("a", "b", method="tell", call_site="app.py:9"), *[wait("a", "b")] * 8, wait("b", "a")]
    (box,) = [box for box in picture(rows, [], [["a", "b"]]).boxes if box.title == "a"]
    assert box.lines == ("A.ask (app.py:7) (9 calls)", "A.tell (app.py:9)")


def test_what_waits_at_one_place_for_the_same_is_one_box_with_a_count() -> None:
    behind = [*[wait(f"w-{row}", "m0") for row in range(20)], *[wait(f"v-{row}", f"w-{row}") for row in range(20)]]
    found = picture(ring(3), [*behind, wait("one", "m1")], [["m0", "m1", "m2"]])
    assert sorted(box.title for box in found.boxes) == ["20 × A", "20 × A", "m0", "m1", "m2", "one"]
    assert [box.lines[0] for box in found.boxes if len(box.machines) > 1] == ["w-[0-19]", "v-[0-19]"]
    assert not found.is_grouped


def test_more_than_can_be_drawn_are_boxes_of_a_class_at_one_place() -> None:
    behind = [wait(f"w{row}", f"m{row % 3}", method=f"do{row // 100}") for row in range(3_000)]
    found = picture(ring(3), behind, [["m0", "m1", "m2"]])
    assert found.is_grouped
    assert {"m0", "m1", "m2"} < {box.title for box in found.boxes}, "the core is drawn one by one while it can be"
    assert len(found.boxes) <= MOST_BOXES
    assert {box.title for box in picture(ring(500), []).boxes} == {"500 × A"}


def test_those_that_might_call_are_one_box_with_how_many_of_them_are_stuck() -> None:
    inside = [wait("buffer", "buffer", "w-0", "w-1", "w-2", "idle", mode="any", waits_for_later_call=True)] * 3
    found = picture([*inside, *(wait(f"w-{row}", "buffer") for row in range(3))], [])
    (callers,) = [box for box in found.boxes if box.kind == CALLERS]
    assert (callers.title, callers.lines) == ("4 possible callers", ("idle, w-[0-2]", "3 of them are stuck"))
    assert sorted((box.title, box.distance) for box in found.boxes) == [
        ("3 × A", 0), ("4 possible callers", -1), ("buffer", 0),
    ]  # fmt: skip
    assert {(found.boxes[one.source].title, one.is_any) for one in found.arrows} == {("buffer", True), ("3 × A", False)}
    assert "a call of any of them would end the wait" in wait_svg.svg(found)


def test_a_wait_that_one_of_several_ends_is_dashed_and_one_for_a_holder_leads_to_the_actor_itself() -> None:
    found = picture(
        [], [wait("a", "b", "c", mode="any"), wait("b", "b", "c", waits_for_later_call=True, held_by="A.add")]
    )
    arrows = {(found.boxes[one.source].title, found.boxes[one.target].title): one.is_any for one in found.arrows}
    assert arrows == {("a", "b"): True, ("a", "c"): True, ("b", "b"): False}
    assert "any of these would do" in wait_svg.svg(found)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 12, 40])
def test_no_box_lies_over_another_and_all_is_in_view(count: int) -> None:
    behind = [wait(f"w{row}", f"m{row % count}") for row in range(19)]
    found = picture(ring(count), behind, [[f"m{row}" for row in range(count)]])
    tree = ElementTree.fromstring(wait_svg.svg(found))
    width, height = (float(size) for size in str(tree.get("viewBox")).split()[2:])
    boxes = []
    for drawn in tree.iter(f"{SVG}rect"):
        left, top, across, down = (float(str(drawn.get(name))) for name in ("x", "y", "width", "height"))
        boxes.append((left, top, left + across, top + down))
    assert len(boxes) == len(found.boxes) + 2, "and two of the legend"
    assert all(left >= 0 and top >= 0 and right <= width and bottom <= height for left, top, right, bottom in boxes)
    for at, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[at + 1 :]:
            assert other[0] >= right or other[2] <= left or other[1] >= bottom or other[3] <= top
    paths = [str(path.get("d")) for path in tree.iter(f"{SVG}path") if "arrow" in str(path.get("class"))]
    assert len(paths) == len(found.arrows)
    for path in paths:
        for x, y in re.findall(r"[MQ ](-?[\d.]+),(-?[\d.]+)", path):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_the_drawing_is_whole_xml_with_a_box_and_an_arrow_each_and_text_that_is_cut() -> None:
    long = "x" * 90
    found = picture([wait("a<b>&", "b"), wait("b", "a<b>&")], [wait(long, "b"), wait("me", "me")], [["a<b>&", "b"]])
    tree = ElementTree.fromstring(wait_svg.svg(found, {"b": "#machine-1"}))
    drawn = [text.text for text in tree.iter(f"{SVG}text") if text.get("class") == "title"]
    assert sorted(map(str, drawn)) == ["a<b>&", "b", "me", "x" * (wait_svg.CHARACTERS - 1) + "…"]
    tips = [title.text or "" for title in tree.iter(f"{SVG}title")]
    assert any(long in tip for tip in tips)
    assert len([path for path in tree.iter(f"{SVG}path") if (path.get("class") or "").startswith("arrow")]) == 4
    assert [link.get("href") for link in tree.iter(f"{SVG}a")] == ["#machine-1"]


def test_nothing_that_waits_is_no_drawing() -> None:
    assert wait_svg.svg(picture([], [])) == ""
