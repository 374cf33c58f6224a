"""What changed between two ledgers of one run: where a difference between them must have arisen."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ray_snapshot.detectors.holdings import labels
from ray_snapshot.detectors.ledger import Amount, Ledger, plain, say
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import word_for

Key = tuple[str, str, str]
"""Source, target, kind of a channel."""


@dataclass(slots=True)
class Traffic:
    """What one channel has carried, and the amount that is in flight on it."""

    sent: int = 0
    accepted: int = 0
    amount: Fraction = Fraction()


def changes(before: Ledger, now: Ledger) -> dict[str, Any]:
    """`machines` whose amount, and `channels` whose traffic or amount in flight changed, the largest
    changes first.

    Of each 100 at most, beside `machine_count` and `channel_count`. A machine has `before` and `after`
    (None: it was not there, or could not be read); a channel these amounts in flight, and how many messages
    were `sent` and `accepted` in between. O(machines + channels + messages).
    """
    machines = changed_machines(before, now)
    channels = [(key, old, new) for key, old, new in traffic_of_both(before, now) if old != new]
    channels.sort(key=lambda one: (-abs(one[2].amount - one[1].amount), one[0]))
    return {
        "machine_count": len(machines),
        "channel_count": len(channels),
        "machines": [
            {"machine": name, "before": _plain(old), "after": _plain(new)}
            for name, _, old, new in machines[: LIMITS.listed]
        ],
        "channels": [_channel_change(*one) for one in channels[: LIMITS.listed]],
    }


def changes_text(changed: dict[str, Any], noun: str) -> str:
    """The counts, and the first few by name; `noun`: what a machine is called."""
    parts = [
        f"{item['machine']} ({_shown(item['before'])} -> {_shown(item['after'])})" for item in changed["machines"][:3]
    ]
    channel = word_for("channel", noun)
    parts += [f"{channel} {item['source']} -> {item['target']}" for item in changed["channels"][:3]]
    counts = f"{changed['machine_count']:,} {noun}s and {changed['channel_count']:,} {channel}s changed"
    return counts + (f", first {', '.join(parts)}" if parts else "")


def _shown(value: float | None) -> str:
    return "absent" if value is None else say(value)


def changed_machines(before: Ledger, now: Ledger) -> list[tuple[str, Fraction, Amount | None, Amount | None]]:
    """Machines with another amount: the name, by how much it changed, and both amounts (None: not there, or not read).

    The largest changes first.
    """
    old, new = _by_machine(before), _by_machine(now)
    found = [
        (name, Fraction(new.get(name) or 0) - Fraction(old.get(name) or 0), old.get(name), new.get(name))
        for name in {**new, **old}
        if new.get(name) != old.get(name)
    ]
    return sorted(found, key=lambda item: (-abs(item[1]), item[0]))


def traffic_of_both(before: Ledger, now: Ledger) -> list[tuple[Key, Traffic, Traffic]]:
    """What each channel (source, target, kind) had carried before, and now."""
    old, new = _by_channel(before), _by_channel(now)
    return [(key, old.get(key, Traffic()), new.get(key, Traffic())) for key in {**new, **old}]


def _by_machine(ledger: Ledger) -> dict[str, Amount]:
    pairs = list(ledger.machines.pairs())
    names = labels(ledger.snapshot.tables["machines"], [row for row, _ in pairs], "machine")
    return {name: amount for (name,), (_, amount) in zip(names, pairs, strict=True)}


def _plain(value: Amount | None) -> float | None:
    return None if value is None else plain(value)


def _by_channel(ledger: Ledger) -> dict[Key, Traffic]:
    tables = ledger.snapshot.tables
    columns = (
        tables["channels"][name].to_pylist() for name in ("source", "target", "kind", "sent_count", "accepted_count")
    )
    found: dict[Key, Traffic] = {
        (source, target, kind): Traffic(sent or 0, accepted or 0)
        for source, target, kind, sent, accepted in zip(*columns, strict=True)
    }
    carried = list(ledger.messages.pairs())
    keys = labels(tables["messages"], [row for row, _ in carried], "source", "target", "kind")
    for (source, target, kind), (_, amount) in zip(keys, carried, strict=True):
        found.setdefault((source, target, kind), Traffic()).amount += Fraction(amount)
    return found


def _channel_change(key: Key, before: Traffic, now: Traffic) -> dict[str, Any]:
    return {
        **dict(zip(("source", "target", "kind"), key, strict=True)),
        "before": plain(before.amount),
        "after": plain(now.amount),
        "sent": now.sent - before.sent,
        "accepted": now.accepted - before.accepted,
    }
