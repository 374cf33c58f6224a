"""How often snapshots are taken: every so many seconds, or as often as a share of processor time allows ("1%")."""

from __future__ import annotations

import re

from ray_snapshot.errors import SettingError

Every = float | str
"""Seconds, or a percentage of the processor time of one processor, of the host (or watched process) that it costs most."""

LEAST_S = 0.05
"""No clock of a command line, and none that goes by a share, goes faster."""

MOST_PERCENT = 50.0

_PERCENT = re.compile(r"(\d+(?:\.\d+)?) *%")


def share_of(every: Every) -> float | None:
    """The share, more than 0 and at most 0.5; None of seconds."""
    return None if not isinstance(every, str) else float(every.rstrip("% ")) / 100


def every_of(given: object, least: float = 0.0) -> Every:
    """What a program or a command line was given; raises `SettingError` if it is neither seconds nor a percentage.

    `least`: the fewest seconds that may be asked for.
    """
    if isinstance(given, str) and (found := _PERCENT.fullmatch(given.strip())):
        percent = float(found[1])
        if 0 < percent <= MOST_PERCENT:
            return f"{percent:g}%"
        raise SettingError(f"every={given!r}: a percentage is more than 0 and at most {MOST_PERCENT:g}")
    try:
        if isinstance(given, (str, int, float)) and not isinstance(given, bool):
            seconds = float(given)
            if least <= seconds and 0 < seconds < float("inf"):
                return seconds
    except ValueError:
        pass
    bound = f"{least:g} or more" if least else "more than 0"
    raise SettingError(
        f'every={given!r}: give seconds ({bound}), or a share of processor time that snapshots may take, like "1%"'
    )
