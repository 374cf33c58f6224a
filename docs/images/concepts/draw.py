"""The drawings of `docs/concepts`, as SVG files beside this one: `python docs/images/concepts/draw.py` makes them anew.

Each function is one drawing. What a drawing claims (this cut is consistent, that order is equivalent) is asserted here of the
run that is drawn, so that no drawing shows what is not so. `tests/docs/test_concept_drawings.py` compares the files with
what this script draws. Imports only the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from pen import Point, Run, Sheet, pipe, space_time  # noqa: E402 - the file beside this one, wherever it is run from

WIDTH = 760


# Why polling lies


def _coin_run(sheet: Sheet, left: float, asks: Sequence[tuple[str, float, int]], title: str, sum_: str) -> None:
    """Actors a and b, a coin that goes from a to b, and a program that asks (whom, when, what it hears)."""
    right = left + 340
    y = {"program": 84.0, "a": 154.0, "b": 224.0}
    sent, accepted = left + 165, left + 210
    sheet.text(left, 34, title, "head")
    for name, height in y.items():
        sheet.text(left, height + 4, name, "strong")
        sheet.line((left + 70, height), (right, height), "lane")
    sheet.line((left + 78, y["a"]), (sent - 8, y["a"]), "coin-lane")
    sheet.line((accepted + 8, y["b"]), (right - 8, y["b"]), "coin-lane")
    sheet.arrow((sent, y["a"]), (accepted, y["b"]), "gold", gaps=(4, 4))
    sheet.coin((sent + accepted) / 2, (y["a"] + y["b"]) / 2)
    for whom, moment, heard in asks:
        sheet.arrow((left + moment, y["program"]), (left + moment, y[whom]), "ask", gaps=(13, 7))
        sheet.circle((left + moment, y["program"]), 12, "plain")
        sheet.text(left + moment, y["program"] + 4, str(heard), "middle strong")
    sheet.text(right, 276, sum_, "end strong bad")


def polling() -> Sheet:
    sheet = Sheet(
        WIDTH,
        300,
        title="One coin, polled twice",
        description="Two runs of actors a and b, in which one coin goes from a to b. On the left a program asks a"
        " before the coin leaves and b after it came, and counts two coins. On the right it asks b first and"
        " a last, and counts none.",
    )
    _coin_run(sheet, 24, [("a", 120, 1), ("b", 275, 1)], "a is asked first, then b", "1 + 1: the coin is counted twice")
    _coin_run(
        sheet, 396, [("b", 120, 0), ("a", 275, 0)], "b is asked first, then a", "0 + 0: the coin is not counted at all"
    )
    return sheet


def one_moment() -> Sheet:
    sheet = Sheet(
        WIDTH,
        272,
        title="The same run, with a snapshot across it",
        description="The coin goes from a to b. A snapshot's cut crosses the line of a after the coin was sent and the"
        " line of b before it was accepted: a holds 0, b holds 0, and one coin is on its way.",
    )
    y = {"a": 84.0, "b": 164.0}
    sent, accepted = 250, 390
    for name, height in y.items():
        sheet.text(40, height + 4, name, "strong")
        sheet.line((70, height), (720, height), "lane")
    sheet.line((80, y["a"]), (sent - 8, y["a"]), "coin-lane")
    sheet.line((accepted + 8, y["b"]), (710, y["b"]), "coin-lane")
    sheet.arrow((sent, y["a"]), (accepted, y["b"]), "blue", gaps=(4, 4))
    sheet.path([(330, 44), (330, y["a"]), (300, y["b"]), (300, 204)], "cut")
    for place in ((330, y["a"]), (300, y["b"])):
        sheet.box(place[0] - 4, place[1] - 4, 8, 8, "point", round=0)
    sheet.coin(320, 124)
    sheet.text(330, 34, "snapshot", "middle small cut-label")
    sheet.text(345, y["a"] - 10, "a records: 0", "small")
    sheet.text(290, y["b"] + 22, "b records: 0", "small end")
    sheet.text(372, 128, "on its way from a to b: 1", "small")
    sheet.text(380, 248, "0 + 0 + 1: one coin, wherever the cut is drawn", "middle strong good")
    return sheet


# Red and white

EXAMPLE = Run(
    {
        "P1": [("A", 130), ("B", 190), ("C", 350), ("D", 480), ("E", 540)],
        "P2": [("F", 205), ("G", 275), ("H", 340)],
        "P3": [("I", 150), ("J", 480)],
    },
    [("A", "F"), ("I", "G"), ("H", "D"), ("C", "J")],
)
EXAMPLE_CUT = {"P1": 235.0, "P2": 432.0, "P3": 310.0}
EXAMPLE_MARKERS = [
    ("P1", 235, "P3", 310),
    ("P1", 235, "P2", 560),
    ("P3", 310, "P2", 432),
    ("P3", 310, "P1", 420),
    ("P2", 432, "P1", 610),
    ("P2", 432, "P3", 580),
]


def red_and_white() -> Sheet:
    sheet = Sheet(
        WIDTH,
        366,
        title="A run of three machines, white and red",
        description="P1 records after its action B and sends markers to P2 and P3. P3 records when its marker arrives,"
        " after I; P2 when the marker of P3 arrives, after H. Actions before the record are white, those"
        " behind it red. The message sent in H, which is white, and accepted in D, which is red, crosses the"
        " cut: it is in flight.",
    )
    assert EXAMPLE.in_flight(EXAMPLE_CUT) == [("H", "D")]
    assert not EXAMPLE.backwards(EXAMPLE_CUT)
    for (
        source,
        begin,
        target,
        end,
    ) in EXAMPLE_MARKERS:  # sent when the source records; none arrives before its target could
        assert begin == EXAMPLE_CUT[source]
        assert end >= EXAMPLE_CUT[target]
    space_time(
        sheet,
        EXAMPLE,
        left=28,
        right=650,
        top=84,
        apart=88,
        cut=EXAMPLE_CUT,
        label="P1 starts",
        markers=EXAMPLE_MARKERS,
    )
    for row, kind, words in ((96, "white", "white"), (122, "red", "red")):
        sheet.circle((660, row + 40), 8, kind)
        sheet.text(678, row + 44, words, "small")
    for row, kind, words in ((188, "line", "message"), (214, "blue", "in flight"), (240, "marker", "marker")):
        sheet.arrow((648, row), (672, row), kind)
        sheet.text(678, row + 4, words, "small")
    sheet.line((660, 258), (660, 276), "cut")
    sheet.text(678, 271, "the cut", "small")
    sheet.text(
        28,
        336,
        "Recorded: P1 after A and B, P2 after F, G and H, P3 after I; and the message of H, from P2 to P1.",
        "small dim",
    )
    return sheet


def marker_in_channel() -> Sheet:
    sheet = Sheet(
        WIDTH,
        284,
        title="A marker in a channel",
        description="A channel from P2 to P1, first in, first out. In it lie, the oldest first: messages 1 and 2, the"
        " marker, message 3. Messages in front of the marker are white, those behind it are red. When P1 has"
        " recorded, messages 1 and 2 are the state of the channel.",
    )
    rows = (
        (
            84,
            "P1 has not recorded yet",
            "white",
            [("3", "red"), ("marker", "marker-box"), ("2", "white"), ("1", "white")],
        ),
        (
            208,
            "P1 has recorded: for another channel brought its marker first",
            "red",
            [("3", "red"), ("marker", "marker-box"), ("2", "blue"), ("1", "blue")],
        ),
    )
    for y, title, receiver, items in rows:
        sheet.text(28, y - 46, title, "head")
        sheet.box(28, y - 24, 84, 48, "red")
        sheet.text(70, y + 4, "P2", "middle strong on-red")
        end = pipe(sheet, 140, y, items, cell=74)
        sheet.arrow((116, y), (136, y))
        sheet.arrow((end + 4, y), (end + 26, y))
        sheet.box(end + 30, y - 24, 84, 48, receiver)
        sheet.text(end + 72, y + 4, "P1", "middle strong on-red" if receiver == "red" else "middle strong")
    sheet.text(177, 134, "behind it: red", "middle small dim")
    sheet.text(362, 134, "in front of it: white", "middle small dim")
    sheet.lines(576, 76, "At the marker P1 records,", "before it can accept 3.", kind="small")
    sheet.text(362, 258, "the state of this channel: 1, 2", "middle small")
    sheet.lines(576, 200, "When the marker comes,", "this channel is complete.", kind="small")
    return sheet


# The cut

CUT_RUN = {
    "a": [("1", 100.0), ("2", 190.0), ("3", 280.0)],
    "b": [("4", 130.0), ("5", 240.0), ("6", 310.0)],
    "c": [("7", 110.0), ("8", 210.0), ("9", 290.0)],
}
CUT_MESSAGES = [("1", "5"), ("2", "8"), ("4", "3"), ("7", "6")]


def cuts() -> Sheet:
    sheet = Sheet(
        WIDTH,
        330,
        title="A consistent cut, and one that is not",
        description="The same run of machines a, b and c twice. On the left no message is accepted before the cut and"
        " sent behind it; three messages cross the cut forwards, and are in flight. On the right action 8 of"
        " c lies before the cut and accepts a message that action 2 of a sends behind the cut: that message"
        " runs backwards.",
    )
    panels: list[tuple[float, str, Mapping[str, float], str, str]] = [
        (24, "Consistent", {"a": 145, "b": 190, "c": 160}, "good", "blue: sent before the cut, accepted behind it"),
        (396, "Not consistent", {"a": 145, "b": 190, "c": 250}, "bad", "red: accepted before the cut, sent behind it"),
    ]
    for left, title, moments, kind, words in panels:
        moved = {name: [(action, x + left - 24) for action, x in row] for name, row in CUT_RUN.items()}
        run, cut = Run(moved, CUT_MESSAGES), {name: x + left - 24 for name, x in moments.items()}
        assert run.backwards(cut) == ([] if kind == "good" else [("2", "8")])
        sheet.text(left, 34, title, f"head {kind}")
        space_time(sheet, run, left=left, right=left + 336, top=106, apart=72, cut=cut, label="cut")
        sheet.text(left, 312, words, "small")
    return sheet


TOLD = {
    "a": [("1", 110.0), ("3", 290.0), ("6", 500.0)],
    "b": [("2", 190.0), ("4", 350.0), ("8", 650.0)],
    "c": [("5", 430.0), ("7", 580.0)],
}
TOLD_MESSAGES = [("1", "4"), ("2", "5"), ("4", "6"), ("3", "7"), ("5", "8")]
TOLD_CUT = {"a": 240.0, "b": 500.0, "c": 505.0}


def equivalent() -> Sheet:
    sheet = Sheet(
        WIDTH,
        600,
        title="A run, and the equivalent computation",
        description="Above, a run of eight actions in the order in which they happened; the cut is crooked, for a"
        " records early. Action 3 of a is red and comes before the white actions 4 of b and 5 of c. Below,"
        " the same actions with 3 moved behind 4 and 5: all white ones come first, each message is still"
        " sent before it is accepted, and the cut is a straight line.",
    )
    run = Run(TOLD, TOLD_MESSAGES)
    white = [action for action in run.order() if run.is_white(action, TOLD_CUT)]
    red = [action for action in run.order() if not run.is_white(action, TOLD_CUT)]
    swapped = [*white, *red]
    assert run.order() == [*"12345678"]
    assert swapped == [*"12453678"]
    assert not run.backwards(TOLD_CUT)
    places = dict(zip(swapped, (110.0, 190.0, 270.0, 350.0, 470.0, 540.0, 600.0, 660.0), strict=True))
    again = Run({name: [(action, places[action]) for action, _ in row] for name, row in TOLD.items()}, TOLD_MESSAGES)
    straight = dict.fromkeys(TOLD, 412.0)
    assert all(places[sent] < places[accepted] for sent, accepted in TOLD_MESSAGES)
    assert again.in_flight(straight) == run.in_flight(TOLD_CUT)
    for top, title, shown, cut, label in (
        (106, "The run, as it happened", run, TOLD_CUT, "a records first"),
        (406, "The same actions, white ones first", again, straight, "the snapshot, as one moment"),
    ):
        sheet.text(24, top - 72, title, "head")
        space_time(sheet, shown, left=28, right=720, top=top, apart=66, cut=cut, label=label)
    sheet.text(
        28,
        302,
        "3 is red, 4 and 5 are white. They accept nothing that 3 sent: 3 may change places with 4, then with 5.",
        "small dim",
    )
    return sheet


# What is in flight


def counts() -> Sheet:
    sheet = Sheet(
        WIDTH,
        250,
        title="Every message of a channel is in one of three places",
        description="Two channels with seven messages sent inside the cut. On a channel of mail messages 1 to 4 were"
        " accepted, and 5, 6 and 7 are in flight. On a channel of calls 1, 2, 3 and 5 were accepted, call 4"
        " was settled because it could not be accepted any more, and 6 and 7 are in flight.",
    )
    rows: tuple[tuple[float, str, str, str], ...] = (
        (76, "mail", "AAAAFFF", "7 sent = 4 accepted + 3 in flight"),
        (156, "calls", "AAASAFF", "7 sent = 4 accepted + 2 in flight + 1 settled"),
    )
    kinds = {"A": "grey", "F": "blue", "S": "behind"}
    for y, name, where, words in rows:
        assert [where.count(letter) for letter in "AFS"] == ([4, 3, 0] if name == "mail" else [4, 2, 1])
        sheet.text(28, y + 4, name, "strong")
        for number, letter in enumerate(where, 1):
            at = 84 + 44 * (number - 1)
            sheet.box(at, y - 16, 38, 32, kinds[letter])
            sheet.text(at + 19, y + 4, str(number), "middle")
        sheet.text(410, y + 4, words, "small")
    sheet.text(28, 38, "One channel from a to b: the messages that a had numbered when it recorded", "head")
    for at, kind, words in (
        (84, "grey", "accepted by b, before b recorded"),
        (340, "blue", "in flight"),
        (460, "behind", "settled: it will never be accepted"),
    ):
        sheet.box(at, 206, 18, 18, kind)
        sheet.text(at + 26, 220, words, "small")
    return sheet


def call() -> Sheet:
    sheet = Sheet(
        WIDTH,
        310,
        title="Where a call is, from beginning to end",
        description="A caller calls an actor and waits for the reply. Until the actor begins the call, it is a message"
        " in flight. While the actor runs it, it is a row of the table calls. When the reply has been sent,"
        " the caller's wait is satisfied, though the caller has not woken up yet.",
    )
    y = {"caller": 86.0, "actor": 166.0}
    moments = called, begun, replied, woken = 130, 330, 520, 650
    for moment in moments:
        sheet.line((moment, 54), (moment, 262), "line faint")
    for name, height in y.items():
        sheet.text(28, height + 4, name, "strong")
        sheet.line((92, height), (730, height), "lane")
    sheet.line((225, y["actor"]), (begun, y["actor"]), "line blue")
    sheet.arrow((called, y["caller"] + 12), (225, y["actor"]), "blue")
    sheet.text(262, y["actor"] + 24, "in Ray's queue", "middle small dim")
    sheet.box(begun, y["actor"] - 12, replied - begun, 24, "plain")
    sheet.text((begun + replied) / 2, y["actor"] + 4, "the method runs", "middle small")
    sheet.arrow((replied, y["actor"] - 12), (woken, y["caller"] + 13), "good")
    sheet.box(called, y["caller"] - 12, woken - called, 24, "behind")
    sheet.text(425, y["caller"] + 4, "blocked in ray.get", "middle small")
    sheet.text(28, 38, "What a snapshot shows depends on where the cut crosses", "head")
    for begin, end, first, second in (
        (called, begun, "a message in flight,", "kind call"),
        (begun, replied, "a call that runs:", "a row of calls"),
        (replied, woken, "a reply on its way:", "wait satisfied"),
    ):
        sheet.lines((begin + end) / 2, 232, first, second, kind="middle small")
    sheet.lines(
        380,
        288,
        "A cut in front of all this, or behind it, shows nothing of the call but the counts.",
        kind="middle small dim",
    )
    return sheet


# Stable predicates


def stable() -> Sheet:
    sheet = Sheet(
        WIDTH,
        340,
        title="What a snapshot tells of a stable predicate",
        description="Two ways lead from state S0, in which the snapshot began, to state S1, in which it was complete:"
        " the run as it happened, and the equivalent computation through the snapshot state. Below: if the"
        " predicate held in S0 it holds in the snapshot; if it holds in the snapshot it holds in S1; if it"
        " began in between, the snapshot may say either.",
    )
    s0, sss, s1 = (110.0, 110.0), (380.0, 62.0), (650.0, 110.0)
    for begin, end, kind in ((s0, sss, "gold"), (sss, s1, "gold")):
        sheet.arrow(begin, end, kind, gaps=(24, 24))
    sheet.arrow(s0, s1, "line", gaps=(24, 24), bend=-90)
    for (x, y), name, kind in ((s0, "S0", "white"), (sss, "SSS", "coin"), (s1, "S1", "red")):
        sheet.circle((x, y), 22, kind)
        sheet.text(x, y + 5, name, "middle strong on-red" if kind == "red" else "middle strong")
    sheet.lines(58, 60, "the snapshot", "begins", kind="small dim middle")
    sheet.text(380, 32, "the snapshot state", "middle small cut-label")
    sheet.lines(702, 60, "it is", "complete", kind="small dim middle")
    sheet.text(380, 140, "the run, as it happened", "middle small dim")
    rows: tuple[tuple[float, float, str, str], ...] = (
        (214, 40, "holds in S0", "holds"),
        (254, 560, "begins between S0 and S1", "either"),
        (294, 740, "does not hold in S1", "does not hold"),
    )
    for y, begin, words, told in rows:
        sheet.text(28, y + 5, words, "small")
        sheet.box(200, y - 8, 440, 18, "grey", round=2)
        held = max(200.0, min(float(begin), 640.0))
        if held < 640:
            sheet.box(held, y - 8, 640 - held, 18, "moves", round=2)
        sheet.text(654, y + 5, told, "small strong")
    sheet.text(200, 196, "S0", "middle small dim")
    sheet.text(628, 196, "S1", "middle small dim")
    sheet.text(410, 196, "green: the predicate holds, and goes on holding", "middle small dim")
    sheet.text(744, 196, "snapshot says", "end small dim")
    return sheet


# Who can move

WAITS: Mapping[str, tuple[int, Sequence[str]]] = {
    "billing": (1, ["stock"]),
    "stock": (1, ["billing"]),
    "cart": (1, ["billing"]),
    "mailer": (1, ["billing", "logger"]),
    "report": (2, ["stock", "mailer", "logger"]),
    "logger": (0, []),
}
"""Who needs how many of whom; logger is active."""


def rounds() -> list[list[str]]:
    """What is found to be able to move: in each round all that can move by those of the rounds before."""
    found: list[list[str]] = [["logger"]]
    while True:
        moves = {name for row in found for name in row}
        more = [name for name, (k, on) in WAITS.items() if name not in moves and len(moves.intersection(on)) >= k]
        if not more:
            return found
        found.append(more)


_BOXES: Mapping[str, Point] = {
    "logger": (60, 126),
    "mailer": (178, 126),
    "billing": (296, 126),
    "cart": (296, 60),
    "report": (178, 196),
    "stock": (296, 196),
}
_NEEDS = {"logger": "active", "mailer": "any of 2", "report": "2 of 3", "billing": "all", "stock": "all", "cart": "all"}


def _wait_panel(sheet: Sheet, left: float, top: float, kinds: Mapping[str, str]) -> None:
    centres = {name: (left + x, top + y) for name, (x, y) in _BOXES.items()}
    for name, (_, targets) in WAITS.items():
        for target in targets:
            begin, end = centres[name], centres[target]
            if {name, target} == {"billing", "stock"}:
                shift = 16 if name == "billing" else -16
                begin, end = (begin[0] + shift, begin[1]), (end[0] + shift, end[1])
            across = begin[1] == end[1]
            level = 42.0 if across else 21.0
            gaps = (level, level) if across or begin[0] == end[0] else (39.0, 39.0)
            is_given = kinds[target] == "moves"
            stuck = kinds[name] in ("core", "behind") and kinds[target] in ("core", "behind")
            sheet.arrow(begin, end, "good" if is_given else "bad" if stuck else "line", gaps=gaps)
    for name, (x, y) in centres.items():
        sheet.box(x - 41, y - 20, 82, 40, kinds[name])
        sheet.text(x, y - 3, name, "middle small strong")
        sheet.text(x, y + 13, _NEEDS[name], "middle small dim")


def who_can_move() -> Sheet:
    sheet = Sheet(
        WIDTH,
        580,
        title="Knock out all that can move; what is left is deadlocked",
        description="Six machines. Logger is active, so it can move. Mailer waits for billing or logger, so it can move"
        " next. Report waits for two of stock, mailer and logger, so it can move then. Billing and stock"
        " wait for each other, and cart waits for billing: none of them can ever move. Billing and stock are"
        " the core, cart is stuck behind it.",
    )
    found = rounds()
    assert found == [["logger"], ["mailer"], ["report"]]
    titles = (
        "1: logger is active",
        "2: mailer needs one of two",
        "3: report needs two of three",
        "4: what is left can never move",
    )
    for place, title in enumerate(titles):
        left, top = 20 + 374 * (place % 2), 16 + 266 * (place // 2)
        moves = {name for row in found[: place + 1] for name in row}
        kinds = {name: "moves" if name in moves else "plain" for name in WAITS}
        if place == 3:
            kinds |= {"billing": "core", "stock": "core", "cart": "behind"}
        sheet.text(left + 4, top + 18, title, "head")
        _wait_panel(sheet, left, top + 6, kinds)
    for at, kind, words in (
        (24, "moves", "can move"),
        (130, "core", "the core: deadlocked"),
        (310, "behind", "stuck behind the core"),
    ):
        sheet.box(at, 545, 18, 18, kind)
        sheet.text(at + 26, 559, words, "small")
    sheet.arrow((500, 554), (528, 554))
    sheet.text(536, 559, "waits for", "small")
    return sheet


# Coverage


def coverage() -> Sheet:
    sheet = Sheet(
        WIDTH,
        320,
        title="What was not observed, and what it may still change",
        description="Two systems, each with another job outside of what the snapshot observed. On the left a consumer"
        " waits for producer, which is at rest; the job has a handle of producer and may call it, so whether"
        " this is a deadlock cannot be told. On the right two actors wait for each other's replies; no call"
        " of the job can give these, so this is a deadlock.",
    )
    panels = (
        (
            24.0,
            (("consumer", "waits for producer", "behind"), ("producer", "at rest", "plain")),
            ("Cannot be told: a call may wake producer", "cut-label"),
        ),
        (
            396.0,
            (("left", "waits for right", "core"), ("right", "waits for left", "core")),
            ("Deadlock: no call ends these waits", "bad"),
        ),
    )
    for left, machines, verdict in panels:
        sheet.box(left, 30, 340, 128, "frame", round=8)
        sheet.text(left + 14, 52, "what the snapshot observed", "small dim")
        first, second = left + 84, left + 256
        if machines[1][2] == "core":
            sheet.arrow((first + 66, 96), (second - 66, 96), "bad")
            sheet.arrow((second - 66, 112), (first + 66, 112), "bad")
        else:
            sheet.arrow((first + 66, 104), (second - 66, 104), "line")
        for x, (name, need, box) in zip((first, second), machines, strict=True):
            sheet.box(x - 66, 78, 132, 52, box)
            sheet.text(x, 100, name, "middle strong")
            sheet.text(x, 118, need, "middle small dim")
        sheet.box(second - 66, 206, 132, 52, "grey")
        sheet.text(second, 228, "another job", "middle strong")
        sheet.text(second, 246, "has a handle", "middle small dim")
        sheet.arrow((second, 206), (second, 130), "outside", gaps=(0, 3))
        sheet.text(left, 298, verdict[0], f"strong {verdict[1]}")
    return sheet


# Going back


def going_back() -> Sheet:
    sheet = Sheet(
        WIDTH,
        318,
        title="Why all go back together",
        description="The coin goes from a to b. On the left b dies and only b goes back to the time before it accepted"
        " the coin: no machine holds it any more. On the right both go back to one cut, in which the coin is in"
        " flight; it is sent again, and b has it.",
    )
    for left, title in ((24.0, "Only b goes back"), (396.0, "Both go back to one cut")):
        sheet.text(left, 34, title, "head")
    y = {"a": 112.0, "b": 192.0}
    for left, together in ((24.0, False), (396.0, True)):
        cut, sent, accepted, dies, end = left + 118, left + 70, left + 160, left + 205, left + 340
        for name, height in y.items():
            sheet.text(left, height + 4, name, "strong")
            sheet.line((left + 22, height), (end, height), "lane")
        sheet.line((left + 28, y["a"]), (sent - 6, y["a"]), "coin-lane")
        sheet.arrow((sent, y["a"]), (accepted, y["b"]), "gold", gaps=(3, 3))
        if together:
            sheet.path([(cut, 72), (cut, 222)], "cut")
            sheet.text(cut, 64, "the snapshot", "middle small cut-label")
        sheet.coin((sent + accepted) / 2, 152)
        sheet.line((accepted + 6, y["b"]), (dies - 12, y["b"]), "coin-lane")
        sheet.line((dies - 6, y["b"] - 8), (dies + 6, y["b"] + 8), "line bad")
        sheet.line((dies - 6, y["b"] + 8), (dies + 6, y["b"] - 8), "line bad")
        sheet.text(dies, y["b"] + 26, "b dies", "middle small bad")
        if together:
            sheet.line((dies + 22, 76), (dies + 22, 222), "line outside")
            sheet.text(dies + 30, 84, "generation 2", "small dim")
            sheet.arrow((dies + 34, y["a"]), (dies + 78, y["b"]), "gold", gaps=(3, 3))
            sheet.coin(dies + 56, 152)
            sheet.line((dies + 84, y["b"]), (end - 4, y["b"]), "coin-lane")
            sheet.text(left, 262, "In the cut the coin is in flight: it is sent again.", "small")
            sheet.text(left, 282, "What generation 1 still sends is refused.", "small")
        else:
            sheet.arrow((dies - 28, y["b"] + 22), (sent + 10, y["b"] + 22), "line")
            sheet.text(sent + 10, y["b"] + 40, "b goes back", "small dim")
            sheet.text(dies + 30, y["b"] - 10, "b does not have it", "small")
            sheet.text(left + 222, y["a"] - 10, "a has sent it", "small")
            sheet.text(left, 262, "b is as before it accepted the coin, a as after it", "small")
            sheet.text(left, 282, "sent it. The coin is in no place: it is lost.", "small")
    return sheet


# The protocols


def protocols() -> Sheet:
    sheet = Sheet(
        WIDTH,
        600,
        title="Four ways to tell white from red",
        description="Chandy and Lamport: a marker in each channel, white messages in front of it, red ones behind."
        " Observer: no marker, each message bears the number of the last snapshot that its sender had"
        " recorded, so the order does not matter. Aligned barriers: an input that has delivered its barrier"
        " is blocked until all inputs have. Unaligned barriers: the barrier overtakes what lies in front of"
        " it, and what it overtook is recorded.",
    )
    white, red, marker = "white", "red", "marker-box"
    told = (
        (34, "chandy-lamport", "A marker parts white from red. The channel must be first in, first out."),
        (
            150,
            "observer",
            "Each message bears the number of its sender's last snapshot: here 6 or 7. Any order will do.",
        ),
        (266, "aligned-barrier", "The upper input has delivered its barrier, and is blocked until the lower one has."),
        (
            444,
            "unaligned-barrier",
            "The barrier overtakes: the machine records at once, and what was overtaken is kept.",
        ),
    )
    for y, name, words in told:
        sheet.text(24, y, name, "head")
        sheet.text(24, y + 20, words, "small dim")
    _one(sheet, 92, [("4", red), ("marker", marker), ("2", white), ("1", white)])
    _one(sheet, 208, [("2 / 6", white), ("4 / 7", red), ("1 / 6", white), ("3 / 7", red)])
    _two(sheet, 324)
    _one(sheet, 502, [("4", red), ("2", "blue"), ("1", "blue"), ("barrier", marker)])
    sheet.text(
        24,
        582,
        "White: sent before the sender recorded. Red: sent behind that. Blue: recorded as in flight.",
        "small dim",
    )
    return sheet


def _one(sheet: Sheet, y: float, items: list[tuple[str, str]]) -> None:
    end = pipe(sheet, 120, y, items, cell=76)
    sheet.box(24, y - 20, 70, 40, "red")
    sheet.text(59, y + 4, "sender", "middle small on-red")
    sheet.arrow((96, y), (116, y))
    sheet.arrow((end + 4, y), (end + 26, y))
    sheet.box(end + 30, y - 20, 80, 40, "plain")
    sheet.text(end + 70, y + 4, "receiver", "middle small")


def _two(sheet: Sheet, y: float) -> None:
    upper, lower = y, y + 58
    pipe(sheet, 120, upper, [("5", "red"), ("4", "red"), ("3", "red"), ("", "")], cell=76)
    pipe(sheet, 120, lower, [("", ""), ("barrier", "marker-box"), ("2", "white"), ("1", "white")], cell=76)
    for height in (upper, lower):
        sheet.box(24, height - 20, 70, 40, "red")
        sheet.text(59, height + 4, "sender", "middle small on-red")
        sheet.arrow((96, height), (116, height))
    sheet.line((420, upper - 16), (420, upper + 16), "line bad")
    sheet.text(430, upper - 6, "blocked", "small bad")
    sheet.arrow((428, lower), (516, y + 40), "line", gaps=(0, 4))
    sheet.box(516, y + 2, 90, 54, "white")
    sheet.text(561, y + 33, "machine", "middle small")


DRAWINGS: Mapping[str, Callable[[], Sheet]] = {
    "polling": polling,
    "one-moment": one_moment,
    "red-and-white": red_and_white,
    "marker-in-channel": marker_in_channel,
    "cuts": cuts,
    "equivalent": equivalent,
    "counts": counts,
    "call": call,
    "stable": stable,
    "who-can-move": who_can_move,
    "coverage": coverage,
    "going-back": going_back,
    "protocols": protocols,
}


def main() -> int:
    for name, drawing in DRAWINGS.items():
        (HERE / f"{name}.svg").write_text(drawing().svg(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
