"""What a program that uses us is told: `say` is for alarms, reports and reasons, `LOGGER` for what is diagnostic.

`say` writes to stderr itself: no configuration of `logging` silences that something is stuck, was given up or is watched no
more. The logger has no handler: a program that configures no logging sees its warnings on stderr, by Python's own last resort.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

from ray_snapshot.streams import StreamError, shown
from ray_snapshot.wrapping import fitting

LOGGER = logging.getLogger("ray_snapshot")


def say(text: str, *, wraps: bool = False) -> None:
    """A line or more for a person, on stderr; a stream that is closed or full is the program's own affair.

    `wraps`: a terminal gets lines that fit; not for what is there to be copied.
    """
    told = "\n".join(map(shown, text.split("\n")))
    with suppress(OSError, ValueError, StreamError):
        print("\n".join(fitting(told, sys.stderr)) if wraps else told, file=sys.stderr, flush=True)
