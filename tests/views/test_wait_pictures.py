"""Who waits for whom as boxes and arrows, and their drawing."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from ray_snapshot.views import wait_svg
from ray_snapshot.views.wait_picture import BEHIND, CORE, MOST_BOXES, OTHER, WAITS, Picture, picture

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


def test_more_than_can_be_drawn_are_boxes_of_a_class_at_one_place() -> None:
    behind = [wait(f"w{row}", "m0") for row in range(500)]
    found = picture(ring(3), behind, [["m0", "m1", "m2"]])
    assert found.is_grouped
    assert sorted(box.title for box in found.boxes) == ["3 × A", "500 × A"]
    many = [wait(f"w{row}", "m0", method=f"do{row}") for row in range(500)]
    assert len(picture(ring(3), many, []).boxes) <= MOST_BOXES + 1


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
    assert sorted(map(str, drawn)) == ["a<b>&", "b", "me", "x" * 32 + "…"]
    tips = [title.text or "" for title in tree.iter(f"{SVG}title")]
    assert any(long in tip for tip in tips)
    assert len([path for path in tree.iter(f"{SVG}path") if (path.get("class") or "").startswith("arrow")]) == 4
    assert [link.get("href") for link in tree.iter(f"{SVG}a")] == ["#machine-1"]


def test_nothing_that_waits_is_no_drawing() -> None:
    assert wait_svg.svg(picture([], [])) == ""
