"""Deterministic worlds around `ray_snapshot.protocol`, in which every order can be tried.

`mail`: hosts with machines that are pure functions, under every fault of a network, and what chooses their steps. `calls`:
actors of a Ray app, and the theorem for calls. `parties`: both in one system. `rollback`: a snapshot as the next generation of
its world, with crashes. `following` is one run under every protocol. No module of these imports anything but the standard
library and `ray_snapshot`; none of the product imports them.
"""

from __future__ import annotations

import shlex


def replay(name: str, seed: int) -> str:
    """What errors say: the command that prints this run step by step, from the root of the checkout."""
    return f"replay: PYTHONPATH=tests python -m worlds {shlex.quote(name)} {seed}"
