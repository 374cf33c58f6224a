"""What each command ends with: said in its `--help`, and in the reference's table, which is made of this one.

`tests/test_exit_codes.py` holds every line against what the command does.
"""

from __future__ import annotations

OF_EVERY: dict[int, str] = {
    1: "whatever reads the output has stopped reading",
    2: "it cannot be done, was asked wrongly, or its output cannot be written; one line on stderr says what, and what to do",
    70: "a fault of ray-snapshot; one line says which, and RAY_SNAPSHOT_DEBUG=1 prints its traceback: please report it",
    130: "Ctrl-C",
}
"""What every command may end with."""

OF: dict[str, dict[int, str]] = {
    "run": {
        0: "as the program: its exit code is the command's",
        3: "--exit-on, or --on-deadlock exit, ended the program",
    },
    "restore": {0: "as the program: its exit code is the command's"},
    "systems": {0: "listed"},
    "snapshot": {0: "taken; it goes into the system's history"},
    "top": {0: "the system has ended, or Ctrl-C"},
    "diagnose": {
        0: "healthy",
        3: "a deadlock, or one is suspected, or a demand that no node can meet",
        4: "it cannot be told",
    },
    "list": {0: "listed"},
    "show": {0: "shown"},
    "conservation": {0: "answered, also where the ledger does not hold"},
    "since": {0: "answered, also where something alarms", 1: "answered, and a detector failed when it was asked"},
    "diff": {0: "answered, also where nothing changed"},
    "sql": {0: "answered"},
    "report": {0: "written"},
    "serve": {0: "ended by Ctrl-C"},
    "verdicts": {0: "listed"},
    "verify": {0: "all passed", 1: "something did not"},
    "compact": {0: "done"},
    "vacuum": {0: "done, or told with --dry-run"},
    "analyze": {0: "done", 1: "done, and a detector of `detections` raised"},
    "synth": {0: "made"},
    "simulate": {0: "every snapshot is as its protocol promises", 1: "one is not"},
    "explore": {
        0: "every state (with --within: every state within) was looked at, and nothing is wrong; of --by-hand: q, or the end"
        " of what was typed",
        1: "a counterexample",
        4: "no counterexample, but not every state was looked at, or something could not be told",
    },
    "witness": {0: "all was shown", 1: "something differed"},
    "blame": {
        0: "all is right behind every action",
        1: "an action is named",
        4: "the run cannot be done again as far as where it is broken",
    },
    "doctor": {0: "nothing is in the way; there may be warnings", 1: "a problem"},
    "demo": {0: "shown"},
}
"""By command, in the order of the reference: 0, and what is its own."""


def said(codes: dict[int, str]) -> str:
    """These codes in a line."""
    return "; ".join(f"{code}: {meaning}" for code, meaning in codes.items())


def epilog(command: str) -> str:
    """What stands last in a command's help."""
    return f"Exit codes: {said(OF[command])}. Of every command: {said(OF_EVERY)}."
