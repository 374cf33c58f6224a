"""The command line that examples have in common."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import ray_snapshot as rs


def run(
    description: str | None,
    play: Callable[..., dict[str, Any]],
    tell: Callable[[dict[str, Any]], None],
    argv: list[str] | None,
    *,
    every: float = 0.2,
    **switches: str,
) -> int:
    """Play as the command line says, and tell what was found. `switches`: further settings of `play`, with their help."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--history", metavar="DIR", help="keep every snapshot there")
    parser.add_argument("--every", type=float, default=every, metavar="S", help="seconds between snapshots")
    parser.add_argument("--json", action="store_true", help="print what was found as one JSON object")
    for name, words in switches.items():
        parser.add_argument(f"--{name}", action="store_true", help=words)
    options = vars(parser.parse_args(argv))
    as_json = options.pop("json")
    try:
        facts = play(on_verdict=None if as_json else say, **options)
    except (rs.HistoryWriteError, rs.HistoryFormatError) as error:
        parser.error(str(error))
    if as_json:
        print(json.dumps(facts))
    else:
        tell(facts)
    return 0


def say(verdict: rs.Verdict) -> None:
    """A verdict, as it comes."""
    print(f"  {verdict.detector}: {verdict.sentence}", flush=True)
