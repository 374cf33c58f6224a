"""A report as Markdown with a Mermaid graph, for a comment on an issue: under `MOST` characters.

All that comes from the history is escaped: no markup, no mention of a person, no link is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ray_snapshot.reports.gathering import ALARM, CLEAR, UNKNOWN, Report
from ray_snapshot.reports.texts import at, cut, plain
from ray_snapshot.views.wait_picture import BEHIND, CALLERS, CORE, OTHER, Picture

MOST = 60_000
"""Characters; a comment on GitHub may have 65,536."""
MOST_GRAPH = 24_000
"""Characters of a graph: Mermaid itself draws none of more than 50,000."""
MOST_LIST = 8_000
MOST_CARDS = 12
MOST_STATE = 600

_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&@])")
_SIGNS = {ALARM: "🔴 Alarm", UNKNOWN: "🟡 Cannot be told", CLEAR: "🟢 No alarm"}


def markdown(report: Report) -> str:
    """The text."""
    verdicts = [f"**{_text(one.detector)}: {_text(one.word)}**. {_text(one.sentence)}" for one in report.verdicts]
    parts = [
        f"## {_text(report.headline)}",
        f"{_SIGNS[report.level]} as of {at(report.taken_at)}.",
        *_waiting(report),
        "### What the detectors say",
        *_list(verdicts, more=report.more_verdicts),
        "### What came before",
        *map(_text, report.past.sentences),
        *_list(map(_text, report.past.steps)),
        "### What is not covered",
        *(_list(map(_text, report.gaps)) or ["Nothing."]),
        "### The snapshot",
        *_table(("", ""), (*report.facts, *report.versions)),
        *_cards(report),
    ]
    return _bounded(parts)


def _bounded(parts: Iterable[str]) -> str:
    """The parts that fit; a part is left out whole, so that no table and no fence is cut in two."""
    kept, left_out, room = [], 0, MOST - 100
    for part in parts:
        if len(part) + 2 <= room:
            kept.append(part)
            room -= len(part) + 2
        else:
            left_out += 1
    if left_out:
        kept.append(f"*{left_out} more parts are left out: there is no room for them here.*")
    return "\n\n".join(kept) + "\n"


def _text(text: str) -> str:
    """Text that is nothing but text to Markdown: it begins no list, an address is no link, and nobody is mentioned."""
    escaped = _MARKUP.sub(r"\\\1", plain(text, 3_000))
    escaped = _LIST.sub(lambda found: f"{found[1]}\\{found[2]}", escaped)
    return _REFERENCE.sub("\\1\u200b", escaped).replace("://", ":\u200b//").replace("www.", "www\u200b.")


_LIST = re.compile(r"^(\d*)([-=.)])")
_REFERENCE = re.compile(r"([@#])(?=\w)")


def _list(lines: Iterable[str], more: int = 0) -> list[str]:
    """One list; of long ones as much as `MOST_LIST` characters, and how many items that leaves out."""
    kept, room, found = [], MOST_LIST, list(lines)
    for line in found:
        if (room := room - len(line)) < 0:
            break
        kept.append(f"- {line}")
    if more := more + len(found) - len(kept):
        kept.append(f"- ... and {more:,} more")
    return ["\n".join(kept)] if kept else []


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    found = [f"| {' | '.join(map(_text, row))} |" for row in rows]
    names = [*heads]
    return ["\n".join([f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}", *found])] if found else []


def _code(text: str) -> str:
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 3)
    return f"{fence}json\n{text}\n{fence}"


def _waiting(report: Report) -> Iterator[str]:
    if report.waiting is None:
        return
    yield f"### {_text(report.waiting.heading)}"
    if (graph := mermaid(report.waiting.picture)) and len(graph) < MOST_GRAPH:
        yield f"```mermaid\n{graph}\n```"
    yield from _list(map(_text, report.waiting.lines))
    if report.waiting.behind:
        yield "Stuck behind them:" if report.waiting.picture.is_certain else "Behind them:"
        yield from _list(map(_text, report.waiting.behind))
    if report.waiting.note:
        yield _text(report.waiting.note)
    if report.waiting.before:
        yield "Before that:"
        yield from _list(map(_text, report.waiting.before))
    if report.waiting.advice:
        yield "### What to do"
        yield from _list(map(_text, report.waiting.advice))


def mermaid(picture: Picture) -> str:
    """The picture as a Mermaid flowchart."""
    lines = ["flowchart LR"]
    for place, box in enumerate(picture.boxes):
        label = "<br>".join(map(_label, (box.title, *box.lines)))
        shape = f'(["{label}"])' if box.kind in (OTHER, CALLERS) else f'["{label}"]'
        lines.append(f"  m{place}{shape}:::{_CLASSES.get(box.kind, 'waits')}")
    lines += [f"  m{arrow.source} {'-.->' if arrow.is_any else '-->'} m{arrow.target}" for arrow in picture.arrows]
    lines += [
        "  classDef stuck stroke:#b3261e,stroke-width:3px",
        "  classDef behind stroke:#9a6700,stroke-width:2px",
        "  classDef waits stroke-width:1px",
        "  classDef callers stroke-dasharray:5 3",
    ]
    return "\n".join(lines)


_CLASSES = {CORE: "stuck", BEHIND: "behind", CALLERS: "callers"}


def _label(text: str) -> str:
    """Text in a label: what Mermaid or HTML would read is written by its number."""
    told = plain(text, 60) or "-"
    escaped = "".join(char if char.isalnum() or char in " .:-,/()" else f"#{ord(char)};" for char in told)
    return _LIST.sub(lambda found: f"{found[1]}#{ord(found[2])};", escaped)


def _cards(report: Report) -> Iterator[str]:
    if not report.cards:
        return
    yield f"### The {report.noun}s concerned"
    for card in report.cards[:MOST_CARDS]:
        lines = [f"**{_text(card.name)}**: {_text(card.about)}, {_text(card.status)}"]
        lines += [f"- in {_text(line)}" for line in card.calls]
        word = "called, not begun" if report.noun == "actor" else "on its way to it"
        lines += [f"- {word}: {_text(line)}" for line in card.inbox]
        lines += [f"- {_text(card.note)}"] if card.note else []
        yield "\n".join(lines)
        if card.state not in (None, "{}"):
            yield _code(cut(card.state or "", MOST_STATE))
    if more := sum(card.count for card in report.cards[MOST_CARDS:]) + report.more_cards:
        yield f"... and {more:,} more {report.noun}s"
