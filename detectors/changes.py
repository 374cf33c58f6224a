"""What changed between two ledgers of one run: where a difference between them must have arisen."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ray_snapshot.detectors.common import MOST_LISTED
from ray_snapshot.detectors.holdings import labels
from ray_snapshot.detectors.ledger import Amount, Ledger, plain, say

_Key = tuple[str, str, str]


@dataclass(slots=True)
class _Traffic:
    """What one channel has carried, and the amount that is in flight on it."""

    sent: int = 0
    accepted: int = 0
    amount: Fraction = Fraction()


_NOTHING = _Traffic()


def changes(before: Ledger, now: Ledger) -> dict[str, Any]:
    """`machines` whose amount, and `channels` whose traffic or amount in flight changed, the largest
    changes first.

    Of each 100 at most, beside `machine_count` and `channel_count`. A machine has `before` and `after`
    (None: it was not there, or could not be read); a channel these amounts in flight, and how many messages
    were `sent` and `accepted` in between. O(machines + channels + messages).
    """
    machines = _machine_changes(_by_machine(before), _by_machine(now))
    channels = _channel_changes(_by_channel(before), _by_channel(now))
    return {
        "machine_count": len(machines),
        "channel_count": len(channels),
        "machines": machines[:MOST_LISTED],
        "channels": channels[:MOST_LISTED],
    }


def changes_text(changed: dict[str, Any]) -> str:
    """The counts, and the first few by name."""
    parts = [
        f"{item['machine']} ({_shown(item['before'])} -> {_shown(item['after'])})" for item in changed["machines"][:3]
    ]
    parts += [f"channel {item['source']} -> {item['target']}" for item in changed["channels"][:3]]
    counts = f"{changed['machine_count']:,} machines and {changed['channel_count']:,} channels changed"
    return counts + (f", first {', '.join(parts)}" if parts else "")


def _shown(value: float | None) -> str:
    return "absent" if value is None else say(value)


def _by_machine(ledger: Ledger) -> dict[str, Amount]:
    pairs = list(ledger.machines.pairs())
    names = labels(ledger.snapshot.tables["machines"], [row for row, _ in pairs], "machine")
    return {name: amount for (name,), (_, amount) in zip(names, pairs, strict=True)}


def _machine_changes(before: dict[str, Amount], now: dict[str, Amount]) -> list[dict[str, Any]]:
    found = [(name, before.get(name), now.get(name)) for name in {**now, **before} if now.get(name) != before.get(name)]
    found.sort(key=lambda item: (-abs(Fraction(item[2] or 0) - Fraction(item[1] or 0)), item[0]))
    return [{"machine": name, "before": _plain(old), "after": _plain(new)} for name, old, new in found]


def _plain(value: Amount | None) -> float | None:
    return None if value is None else plain(value)


def _by_channel(ledger: Ledger) -> dict[_Key, _Traffic]:
    tables = ledger.snapshot.tables
    columns = (
        tables["channels"][name].to_pylist() for name in ("source", "target", "kind", "sent_count", "accepted_count")
    )
    found: dict[_Key, _Traffic] = {
        (source, target, kind): _Traffic(sent or 0, accepted or 0)
        for source, target, kind, sent, accepted in zip(*columns, strict=True)
    }
    carried = list(ledger.messages.pairs())
    keys = labels(tables["messages"], [row for row, _ in carried], "source", "target", "kind")
    for (source, target, kind), (_, amount) in zip(keys, carried, strict=True):
        found.setdefault((source, target, kind), _Traffic()).amount += Fraction(amount)
    return found


def _channel_changes(before: dict[_Key, _Traffic], now: dict[_Key, _Traffic]) -> list[dict[str, Any]]:
    pairs = {key: (before.get(key, _NOTHING), now.get(key, _NOTHING)) for key in {**now, **before}}
    keys = [key for key, (old, new) in pairs.items() if old != new]
    keys.sort(key=lambda key: (-abs(pairs[key][1].amount - pairs[key][0].amount), key))
    return [_channel_change(key, *pairs[key]) for key in keys]


def _channel_change(key: _Key, before: _Traffic, now: _Traffic) -> dict[str, Any]:
    return {
        **dict(zip(("source", "target", "kind"), key, strict=True)),
        "before": plain(before.amount),
        "after": plain(now.amount),
        "sent": now.sent - before.sent,
        "accepted": now.accepted - before.accepted,
    }
