"""Rows of the table `actions` as steps: an action that waited inside is parted where it waited. Pure.

What a step accepts is its messages, or the replies behind which it goes on. Who gave a reply is the last step of the action
that accepted the call. Read `log` next. Never imports Ray, a protocol or the user's code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ray_snapshot.names import DRIVER
from ray_snapshot.witness.log import Action, Message, MessageId, Wait, listed, reply_to


def actions_of(rows: Iterable[Mapping[str, Any]]) -> list[Action]:
    """Rows of the table `actions`, their JSON parsed, as steps."""
    logged = [(row.get("waits") or (), _whole(row)) for row in rows]
    calls = {message.call_id: message.key for _, whole in logged for message in whole.sent if message.call_id}
    parted = [step for waits, whole in logged for step in _parted(whole, waits, calls)]
    return _placed(_with_replies(parted))


def _whole(row: Mapping[str, Any]) -> Action:
    return Action(
        row["machine"],
        row["number"],
        row["method"],
        tuple(_message(item, item["source"], row["machine"]) for item in row["accepted"]),
        tuple(_message(item, row["machine"], item["target"]) for item in row["sent"]),
        row["colour"],
        *(row[name] for name in ("acted_at", "is_over", "waited_at", "raised")),
    )


_OF_MESSAGES = {
    "source": str,
    "target": str,
    "kind": str,
    "number": int,
    "method": str,
    "class": str,
    "seconds": (int, float),
    "call_id": str,
    "ref": str,
    "colour": int,
}
"""What a logged message has, as far as it has it: JSON could hold anything."""

_OF_WAITS = {
    "place": int,
    "function": str,
    "k": int,
    "site": str,
    "timeout": (int, float),
    "colour": int,
    "at": int,
    "came": dict,
}
"""The same of a wait."""


def _check(what: str, item: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    for name, kind in kinds.items():
        if item.get(name) is not None and not isinstance(item[name], kind):
            raise TypeError(f"the {name} of a {what} is {str(item[name])[:100]!r}")


def _message(item: Mapping[str, Any], source: str, target: str) -> Message:
    _check("message", item, _OF_MESSAGES)
    return Message(
        (source, target, item["kind"], item["number"]),
        item["method"],
        listed(item["args"]),
        *(item.get(name) for name in ("exact", "class", "seconds", "call_id", "ref", "colour")),
    )


# ---- where an action is parted -------------------------------------------------------------------------------------------


def _parted(whole: Action, waits: Any, calls: Mapping[Any, MessageId]) -> list[Action]:
    """The steps of an action. A wait of the driver is one step, behind it: its program is not done again."""
    if not isinstance(waits, list | tuple):
        raise TypeError(f"waits are a list, and not {str(waits)[:100]}")
    if not waits:
        return [whole]
    found = [_wait(item, calls) for item in waits]
    if whole.machine == DRIVER:
        return [replace(whole, waited_at=None, behind=found[-1])]
    return _steps(replace(whole, waited_at=None), waits, found)


def _steps(whole: Action, items: Sequence[Mapping[str, Any]], waits: Sequence[Wait]) -> list[Action]:
    begun, first = whole, 0
    steps: list[Action] = []
    for item, wait in zip(items, waits, strict=True):
        place = item["place"]
        if not first <= place <= len(whole.sent):
            raise TypeError(f"a wait behind {place} messages, of {len(whole.sent)}")
        steps.append(replace(begun, sent=whole.sent[first:place], is_over=True, raised=None, ends_in=wait))
        if wait.came is None:
            return steps
        begun = replace(
            whole, accepted=(), acted_at=_moment(item["at"]), colour=item["colour"], step=len(steps), behind=wait
        )
        first = place
    return [*steps, replace(begun, sent=whole.sent[first:])]


def _wait(item: Mapping[str, Any], calls: Mapping[Any, MessageId]) -> Wait:
    _check("wait", item, _OF_WAITS)
    names = item["calls"]
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise TypeError(f"the calls of a wait are {str(names)[:100]!r}")
    asked = tuple(calls.get(name) or ("?", name, "call", 0) for name in names)
    came = item.get("came")
    if came is not None and not _can_have_come(came, None if item.get("foreign") else len(asked)):
        raise TypeError(f"what came of a wait is {str(came)[:100]!r}")
    common = item["function"], item["k"], item["place"], asked, item["site"]
    return Wait(*common, bool(item.get("foreign")), item.get("timeout"), came)


def _can_have_come(came: Mapping[str, Any], calls: int | None) -> bool:
    """`calls`: for how many it was; None if it was for more than calls."""
    values, places, error = came.get("values") or [], came.get("places") or [], came.get("error") or {}
    if not (isinstance(values, list) and isinstance(places, list) and isinstance(error, dict)):
        return False
    if any(type(place) is not int or place < 0 or (calls is not None and place >= calls) for place in places):
        return False
    if len({*places}) < len(places):
        return False
    return all(error.get(name) is None or isinstance(error[name], str) for name in ("type", "text", "told"))


def _moment(micros: int) -> datetime:
    try:
        return datetime.fromtimestamp(micros / 1e6, UTC)
    except (ValueError, OverflowError, OSError):
        raise TypeError(f"{micros} microseconds are no time") from None


# ---- replies -------------------------------------------------------------------------------------------------------------


def _with_replies(steps: list[Action]) -> list[Action]:
    """Who gives which reply, and who goes on behind which."""
    accepted = {(step.machine, step.number): step.accepted for step in steps if step.accepted}
    given = [
        replace(step, answers=tuple(reply_to(message.key) for message in calls))
        if step.is_over and step.ends_in is None and (calls := _calls(accepted, step))
        else step
        for step in steps
    ]
    by = {reply: step for step in given for reply in step.answers}
    return [step if step.behind is None else replace(step, heard=_heard(step.behind, by)) for step in given]


def _calls(accepted: Mapping[tuple[str, int], Sequence[Message]], step: Action) -> list[Message]:
    return [message for message in accepted.get((step.machine, step.number), ()) if message.key[2] == "call"]


def _heard(wait: Wait, by: Mapping[MessageId, Action]) -> tuple[MessageId, ...]:
    """The replies without which a wait could not have ended so."""
    came, replies = wait.came or {}, [reply_to(call) for call in wait.calls]
    if "values" in came:
        return tuple(dict.fromkeys(replies))
    if "places" in came:
        places = came["places"]
        if wait.is_foreign or not all(isinstance(place, int) and 0 <= place < len(replies) for place in places):
            return ()  # of something else than machines too
        return tuple(dict.fromkeys(replies[place] for place in places))
    error = came.get("error")
    if error is None:
        return ()
    return _raising(replies, error, by)


def _raising(
    replies: Sequence[MessageId], error: Mapping[str, Any], by: Mapping[MessageId, Action]
) -> tuple[MessageId, ...]:
    """The reply that was an error: of a list the first that was given as such. An error that no machine has raised, that one
    has stopped or that time is over, is no reply."""
    raised = [reply for reply in replies if reply in by and by[reply].raised == error.get("type")]
    if raised:
        return (min(raised, key=lambda reply: (by[reply].acted_at, by[reply].machine)),)
    if error.get("own"):
        is_result = error.get("type") == "UnpicklableMessageError"
        return tuple(reply for reply in replies[:1] if is_result and len(replies) == 1 and reply in by)
    return tuple(replies[:1])  # its log ends before: the step is left out


def _placed(steps: list[Action]) -> list[Action]:
    """Each with its place in its machine."""
    places: dict[int, int] = {}
    count: dict[str, int] = defaultdict(int)
    for at in sorted(range(len(steps)), key=lambda at: (steps[at].machine, steps[at].number, steps[at].step)):
        count[steps[at].machine] += 1
        places[at] = count[steps[at].machine]
    return [replace(step, place=places[at]) for at, step in enumerate(steps)]
