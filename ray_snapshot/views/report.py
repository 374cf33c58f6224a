"""A deadlock, a termination or a doubt in a few lines for a terminal: what a person reads when an app hangs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from ray_snapshot.names import A_REPLY, NOT_RECORDED, listed, name_ranges, waker

MOST_LINES, MOST_NAMES = 12, 8
_LONG = 160
"""Characters of a line."""

_PACKAGES = r"/site-packages/|/(?:working_dir|py_modules)_files/_ray_pkg_[^/]+/"
"""Where installed libraries are, and where Ray unpacks what a job brings along."""


def current_folder() -> Path | None:
    """None if it is gone."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _beginnings() -> re.Pattern[str]:
    """What call sites begin with and a report leaves out: the path to packages, and the current folder."""
    here = current_folder()
    is_long = here is not None and here != here.parent  # from the root of all paths would be no shorter
    folders = [rf"(?<![^\s(]){re.escape(str(here))}/"] if is_long else []
    return re.compile("|".join([rf"[^\s(]*(?:{_PACKAGES})", *folders]))


def deadlock_report(evidence: Mapping[str, Any], system: str, snapshot_id: str) -> str:
    """The report of a deadlock verdict: what keeps all others, what is stuck behind it, what to change."""
    lines = [f"ray-snapshot: deadlock in {system} (snapshot {snapshot_id}): these can never move again"]
    cause, behind = deadlock_lines(evidence)
    lines += cause
    if behind:
        lines += ["  stuck behind them:", *behind]
    if any(record.get("needs") for name in ("members", "stuck_behind") for record in evidence.get(name, ())):
        lines.append("  this holds as long as no node joins, and nobody outside gives anything back")
    callers = {*evidence.get("callers", ())}  # a thread that has ended is told there
    lines += happened_lines(text for text in evidence.get("happened", ()) if text not in callers)
    return "\n".join([*lines, *remedy_lines(evidence.get("advice", ()))])


def remedy_lines(advice: Iterable[str]) -> list[str]:
    """What a person can do, each once."""
    return [line for text in dict.fromkeys(map(short_sites, advice)) for line in broken(f"  to do: {text}")]


def broken(sentence: str) -> list[str]:
    """A sentence in lines, broken between its parts."""
    first, *parts = sentence.split("; ")
    lines = [first]
    for part in parts:
        is_long = len(lines[-1]) + len(part) >= _LONG
        lines[-1] += ";" if is_long else f"; {part}"
        lines += [f"    {part}"] * is_long
    return lines


def deadlock_lines(evidence: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The smallest set that cannot move by itself, and what is stuck behind it, the nearest first."""
    members, behind = evidence.get("members", ()), evidence.get("stuck_behind", ())
    count, count_behind = evidence.get("member_count", len(members)), evidence.get("stuck_behind_count", len(behind))
    if cause := [one for one in members if one.get("is_cause")]:
        behind = _nearest_first(cause, [*(one for one in members if not one.get("is_cause")), *behind])
        count_behind += count
        count = max(evidence.get("cause_count", 0), len(cause))
        count_behind -= count
    cause, callers = cause or members, evidence.get("callers", ())
    parked, others = list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    for one in cause:
        (parked if callers and one.get("waits_for_later_call") and not one.get("held_by") else others).append(one)
    lines = folded(_parked_lines(parked, is_cut=count > len(cause)))[:MOST_LINES] if parked else []
    lines += wait_lines(others, count - len(parked))
    return [*lines, *(f"    {short_sites(line)}" for line in callers[:MOST_LINES])], wait_lines(behind, count_behind)


def _nearest_first(cause: Iterable[Mapping[str, Any]], records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """`records` by how many waits lie between them and the cause; those that wait to be woken are the last."""
    reached, found, left = {one["machine"] for one in cause}, list[Mapping[str, Any]](), [*records]
    for _ in range(MOST_LINES):
        near = [not (one.get("waits_for_later_call") or reached.isdisjoint(one["waits_for"])) for one in left]
        found += (one for one, is_near in zip(left, near, strict=True) if is_near)
        reached |= {one["machine"] for one in found}
        left = [one for one, is_near in zip(left, near, strict=True) if not is_near]
    return [*found, *left]


def _parked_lines(records: Iterable[Mapping[str, Any]], *, is_cut: bool) -> list[str]:
    """ "buffer: 4 calls of ReplayBuffer.add (app.py:45) and 1 of ReplayBuffer.sample (app.py:53) wait to be woken".

    `is_cut`: there are more.
    """
    places: dict[str, Counter[str]] = {}
    for one in records:
        place = machine_place({**one, "machine": ""}).removeprefix(" in ").strip()
        places.setdefault(str(one["machine"]), Counter())[place] += 1
    head = "at least " * is_cut
    return [f"    {machine}: {head}{_counted(where)} to be woken" for machine, where in places.items()]


def _counted(places: Counter[str]) -> str:
    (first, count), *more = places.most_common()
    texts = [f"{count:,} call{'s' * (count > 1)} of {first}", *(f"{count:,} of {place}" for place, count in more)]
    *most, last = texts
    return f"{', '.join(most)} and {last} wait" if most else f"{last} wait{'s' * (count == 1)}"


def stall_report(sentence: str, evidence: Mapping[str, Any], diagnose: str) -> str:
    """What an app does that stands still: where each group is, what has happened before, and what to type (`diagnose`)."""
    lines = [f"ray-snapshot: {sentence}", *(f"  {short_sites(line)}" for line in evidence["places"][:MOST_LINES])]
    if (more := len(evidence["places"]) - MOST_LINES) > 0:
        lines.append(f"  ... and {more:,} more")
    return "\n".join([*lines, *happened_lines(evidence["happened"]), f"  from another terminal: {diagnose}"])


def happened_lines(sentences: Iterable[str]) -> list[str]:
    """What has happened before, the newest first."""
    shown = [f"    {short_sites(text)}" for text in sentences][:MOST_LINES]
    return ["  before that:", *shown] if shown else []


def wait_lines(records: Iterable[Mapping[str, Any]], count: int | None = None) -> list[str]:
    """A line for each place, with how many calls of one machine wait there; `count`: of all, where these are but some.

    A record with a `count` of its own stands for so many. Calls at one place that each wait for one reply are together, too.
    """
    together: dict[tuple[str, str], Counter[str]] = {}
    for record in records:
        line, calls = f"    {wait_line(record)}", ", ".join(record.get("waits_for_calls", ()))
        call = f" ({calls})" * bool(calls)
        on = record["waits_for"][0] if len(record.get("waits_for", ())) == 1 else ""
        head = line.removesuffix(on + call)
        is_one = bool(on) and head.endswith(" waits for ")
        together.setdefault((head, call) if is_one else (line, ""), Counter())[on * is_one] += record.get("count", 1)
    places = {line + name_ranges(names) + call * any(names): names.total() for (line, call), names in together.items()}
    return screenful(Counter(places), count)


def screenful(places: Counter[str], count: int | None = None) -> list[str]:
    """Lines with how many calls each stands for, those that are alike as one, and how many are left out; `count`: of all."""
    calls_in = {line + (f" ({calls:,} calls)" if calls > 1 else ""): calls for line, calls in places.items()}
    shown: list[tuple[str, int]] = []
    for those in _alike([*calls_in]):
        lines, calls = _of_all(those), [calls_in[line] for _, (line,) in those]
        shown += zip(lines, calls if len(lines) == len(calls) else [sum(calls)], strict=True)
    if len(shown) > MOST_LINES:  # the largest group is the last
        shown = [*shown[: MOST_LINES - 1], shown[-1]]
    hidden = (places.total() if count is None else count) - sum(calls for _, calls in shown)
    return [*(line for line, _ in shown), *([f"    ... and {hidden:,} more"] if hidden > 0 else [])]


_OWN_NAME = re.compile(r"(\s*(?:waits for |[A-Za-z_]\w*(?:\(\))? of )?)(\S*\d(?=[ ,:]|$)|(?!waits )\S+(?= in ))")
_DURATION = re.compile(r"\bfor ([\d,]+) (s|min|h)\b")
_SECONDS = {"s": 1, "min": 60, "h": 3_600}
_FOLDS, _DEEPEST = 3, 50
"""So many lines that are alike are one; so far a tree is looked through."""


def folded(lines: Sequence[str]) -> list[str]:
    """Three or more lines, with what is indented below them, that differ in the machine that they begin with and in how long:
    one for all, and then the smallest group first."""
    return [line for those in _alike(lines) for line in _of_all(those)]


def _alike(lines: Sequence[str], depth: int = 0) -> list[list[tuple[str, list[str]]]]:
    """Groups of lines that are alike: of each line its machine ("" if it begins with none), and it with those below it."""
    groups: dict[tuple[str, ...], list[tuple[str, list[str]]]] = {}
    for at, (head, *rest) in enumerate(_blocks(lines)):
        deeper = _alike(rest, depth + 1) if depth < _DEEPEST else [[("", rest)]]
        below = [line for those in deeper for line in _of_all(those)]
        name = found[2] if (found := _OWN_NAME.match(head)) else ""
        next_to_it = (block[0] for block in _blocks(below))  # what is below that may have been drawn before
        key = [_DURATION.sub("", _renamed(line, name, "#")).replace(" each)", ")") for line in (head, *next_to_it)]
        groups.setdefault((*key, "" if name else str(at)), []).append((name, [head, *below]))
    for bare in [one for one in groups if len(one) == 2 and not one[1]]:
        if len(whole := [one for one in groups if one[0] == bare[0] and len(one) > 2]) == 1:
            groups[whole[0]] += groups.pop(bare)
    return sorted(groups.values(), key=len if max(map(len, groups.values()), default=0) >= _FOLDS else lambda _: 0)


def _of_all(those: list[tuple[str, list[str]]]) -> list[str]:
    if len(those) < _FOLDS:
        return [line for _, block in those for line in block]
    name, block = max(those, key=lambda one: (len(one[1]), max(map(_seconds, one[1]))))
    names = name_ranges(name for name, _ in those)
    others = {one for one, _ in those} - {name}
    renamed = [(line, _renamed(line, name, names, others)) for line in block]
    found = [new.replace(" calls)", " calls each)") if new != line else line for line, new in renamed]
    found[0] = found[0].replace(names, f"{names} ({len(those):,})", 1)
    are_equal = len({tuple(map(_seconds, block)) for _, block in those}) == 1
    return found if are_equal else [_DURATION.sub(r"for up to \1 \2", line) for line in found]


def _seconds(line: str) -> int:
    found = _DURATION.search(line)
    return 0 if found is None else int(found[1].replace(",", "")) * _SECONDS[found[2]]


def _renamed(line: str, name: str, new: str, others: Set[str] = frozenset()) -> str:
    """A line with another name of a machine: not in a place in brackets, nor as a part of another name, nor beside `others`."""
    if not name or not others.isdisjoint(re.split(r"[\s,]+", line)):
        return line
    found, *parts = line.split(name)
    for part in parts:  # a pattern for each of ten thousand names would take seconds
        is_part = re.match(r"[\w.:/-]", found[-1:]) or re.match(r"[\w-]", part)
        found += (name if is_part else new) + part
    return found


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """Each line that is indented as the first is, with those below it."""
    indents = [len(line) - len(line.lstrip()) for line in lines]
    begins = [at for at, indent in enumerate(indents) if indent <= indents[0]]
    return [list(lines[at:end]) for at, end in pairwise([*begins, len(lines)])]


def wait_line(record: Mapping[str, Any]) -> str:
    """One member: `A-0 in A.both (two.py:7) waits for A-1 (A.ask2)`, or `prepare(), not begun, needs CPU 1, ...`."""
    if record.get("needs"):
        return f"{record['machine']}, not begun, needs {record['needs']}"
    return f"{machine_place(record)} waits for {_targets(record)}"


def machine_place(record: Mapping[str, Any]) -> str:
    """Where a machine is: `A-0 in A.both (two.py:7)`, or `(two.py:7, in queue.Queue.get)`."""
    text = str(record["machine"])
    method, kind = record.get("method"), record.get("class")
    if method:
        text += f" in {kind}.{method}" if kind and not str(method).startswith("(") else f" in {method}"
    if record.get("call_site"):
        text += f" ({place_text(record['call_site'], record.get('primitive'))})"
    return text


def _targets(record: Mapping[str, Any]) -> str:
    names = [str(name) for name in record.get("waits_for", ())]
    count = int(record.get("waits_for_count", len(names)))
    if record.get("held_by"):
        return f"{record['held_by']} to give it back"
    if record.get("waits_for_later_call"):
        return waker((one for one in names if one != record["machine"]), count - len(names))
    if record.get("waits_for_a_reader"):
        return f"{name_ranges(names, count - len(names))} to take an item"
    calls = [str(call) for call in record.get("waits_for_calls", ())]
    word = {"any": "any of ", "k_of_n": f"{record.get('k', 'some')} of "}.get(str(record.get("mode")), "")
    word *= len(names) > 1
    if len(calls) != len(names) or not calls or len({*calls}) == 1 < len(names):
        call = f" ({calls[0]})" if calls and len(calls) == len(names) else ""
        return word + (name_ranges(names, count - len(names)) or NOT_RECORDED) + call
    pairs = [name if name == f"{call}()" else f"{name} ({call})" for name, call in zip(names, calls, strict=True)]
    return word + listed(pairs, count, MOST_NAMES)


def chain(frames: Iterable[Mapping[str, Any]], cut: int = 0) -> str:
    """The frames of a stack, from the inside out: "A.inner (app.py:7, in queue.Queue.get) < A.outer (app.py:4)".

    `cut`: so many are left out in the middle. A recursion stands once, with how often.
    """
    sites = ((one, place_text(f"{one['file']}:{one['line']}", one.get("inside"))) for one in frames)
    texts = [f"{one['function']} ({site})" for one, site in sites]
    half = len(texts) // 2
    alike = groupby([*texts[:half], f"{cut:,} more", *texts[half:]] if cut else texts)
    counted = ((text, len(list(those))) for text, those in alike)
    return " < ".join(text + (f" ({times:,} times)" if times > 1 else "") for text, times in counted)


def place_text(site: str, inside: str | None = None) -> str:
    """ "app.py:7, in queue.Queue.get": where the user's own line is, and what it is in."""
    return short_sites(site) + (f", in {inside}" if inside else "")


def short_sites(text: str) -> str:
    """A text with the call sites in it as one would type them here."""
    return _beginnings().sub("", text)


Places = Mapping[tuple[str, str | None], str]
"""By machine and id of a call (None: the machine itself): where that is, as `machine_place` says it."""
_NOTHING: Places = {}


def wait_tree(waits: Iterable[Mapping[str, Any]], places: Places, to_begin: Places = _NOTHING) -> list[str]:
    """Which call waits for which, as an indented tree: first those that no other waits for, then the rest.

    Calls of one machine at one place are drawn once, together. An arrow closes a cycle. Of a call that waits inside its own
    actor it says who could wake it. Who waits for a call of which nothing is known waits for those that its machine runs.
    `places`: of calls that run; `to_begin`: of those that wait for their arguments. The `text` of a row stands for a wait
    outside of Ray.
    """
    return _Tree([row for row in waits if not row["satisfied"]], places, to_begin).drawn()


def open_waits(waits: Iterable[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The rows of waits that are not over, and the machines of the others: enough of what these wait for has come."""
    alternatives: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in waits:
        alternatives.setdefault(_wait_of(row), []).append(row)
    over = {key[:2] for key, rows in alternatives.items() if _is_met(rows)}
    rows = [row for key, rows in alternatives.items() if key[:2] not in over for row in rows]
    return rows, list(dict.fromkeys(machine for machine, _ in sorted(over, key=str)))


def _is_met(rows: Sequence[Mapping[str, Any]]) -> bool:
    needed = max(len(rows) if row.get("k") is None else row["k"] for row in rows)
    return sum(bool(row["satisfied"]) for row in rows) >= needed


def _wait_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["machine"], row.get("call_id"), row.get("alternative")


def first_run(call_id: str | None) -> str | None:
    """The id that a call has whichever of its runs this is."""
    return None if call_id is None else call_id.partition("#")[0]


class _Tree:
    """What waits and what is waited for, each by the text that it is shown with."""

    def __init__(self, rows: list[Mapping[str, Any]], places: Places, to_begin: Places) -> None:
        self.places = {**to_begin, **places}
        self.running: dict[str, dict[str, None]] = {}
        """By machine: where its calls are."""
        for (machine, _), text in places.items():
            self.running.setdefault(machine, {})[text] = None
        self.edges: dict[str, dict[str, None]] = {}
        self.callers: dict[str, dict[str, None]] = {}
        """Of calls that wait to be woken: who, or what, might do it."""
        self.calls: dict[str, set[str]] = {}
        """Which calls wait there."""
        self.texts: set[str] = set()
        """What is waited for that is no machine: "waits in queue.Queue.get (app.py:7) for 24 s"."""
        own = (row for row in rows if row.get("call_id") and not row.get("on_call_id"))
        local = {_wait_of(row) for row in own if row["on_machine"] == row["machine"]}
        for row in rows:
            self._add(row, is_local=_wait_of(row) in local)
        self.seen: set[str] = set()
        self.lines: list[str] = []

    def _add(self, row: Mapping[str, Any], *, is_local: bool) -> None:
        machine, call_id, on_machine = row["machine"], first_run(row.get("call_id")), row["on_machine"]
        source = self._place(machine, call_id)
        targets = (self.callers if is_local else self.edges).setdefault(source, {})
        if call_id is not None:
            self.calls.setdefault(source, set()).add(call_id)
        if is_local:
            is_reply = not (row.get("on_call_id") or "/0").endswith("/0")
            by = f"{A_REPLY}{on_machine}" if is_reply else on_machine or NOT_RECORDED
            targets |= {by: None} if by != machine else {}
        elif on_machine is None:
            targets[text := str(row.get("text", f"waits for {NOT_RECORDED}"))] = None
            self.texts.add(text)
        elif (target := self._place(on_machine, row.get("on_call_id"))) != source or call_id is None:
            targets[target] = None  # else another call at the same place

    def _place(self, machine: str, call_id: str | None) -> str:
        """Where a call is; of one that has not begun, or is not named, where the only one is that its machine runs."""
        running = self.running.get(machine, {})
        return self.places.get((machine, call_id)) or (next(iter(running)) if len(running) == 1 else machine)

    def drawn(self) -> list[str]:
        """The lines of the tree."""
        waited_for = {name for targets in self.edges.values() for name in targets}
        waited_for |= {place for name in waited_for for place in self._parts(name)}
        waiting = dict.fromkeys((*self.edges, *self.callers))
        for root in [*(name for name in waiting if name not in waited_for), *waiting]:
            if root not in self.seen:
                self._branch(root)
        return folded(self.lines)

    def _parts(self, name: str) -> list[str]:
        """Of a machine that runs calls at several places: those that wait."""
        return [place for place in self.running.get(name, ()) if place in self.edges or place in self.callers]

    def _branch(self, name: str, path: tuple[str, ...] = (), lead: str = "") -> None:
        """Draw what `name` waits for, below those that wait for it."""
        indent = "  " * len(path)
        if name in path:
            self.lines.append(f"{indent}{lead}{name}  <- a cycle: it waits for itself")
            return
        count = len(self.calls.get(name, ()))
        self.lines.append(f"{indent}{lead}{name}" + (f" ({count:,} calls)" if count > 1 else ""))
        if name in self.seen:
            return
        self.seen.add(name)
        for part in self._parts(name):
            self._branch(part, (*path, name))
        for target in self.edges.get(name, ()):
            self._branch(target, (*path, name), "" if target in self.texts else "waits for ")
        if name in self.callers:
            self.lines.append(f"{indent}  waits for {waker(self.callers[name])}")
