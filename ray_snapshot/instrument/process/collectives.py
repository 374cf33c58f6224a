"""The process groups of torch.distributed in which this process is a rank, and its threads that stand in a collective.

Read from what is there: the frames of torch's own functions, its table of groups, and each group's counter and time-out, which
the backends return without waiting. Nothing of torch is imported or replaced, and no store is asked, for that may block.
"""

from __future__ import annotations

import math
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Any, NamedTuple

from ray_snapshot.instrument.process.called import local_variables
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.here import outward, place

_C10D = "torch.distributed.distributed_c10d"
_UNCOUNTED = frozenset({"init_process_group", "new_group", "monitored_barrier"})
_COLLECTIVES = re.compile(
    rf"{'|'.join(sorted(_UNCOUNTED))}|all_(gather|reduce|to_all)\w*|reduce(_scatter\w*)?|barrier"
    r"|(broadcast|gather|scatter|send|recv)(_object\w*)?"
)
"""Functions that wait for other ranks; those that no backend counts are of these."""
_JOINS, _CONNECTS = "init_process_group", "_create_c10d_store"
"""The function that makes the first group, and the one inside that connects to its store."""
_PEERS = {"send": ("dst", "group_dst"), "recv": ("src", "group_src")}
"""Functions that need one other rank, with the variables that hold it: its rank in the world, or in the group."""
_ASKING_S = 0.02
"""Longest time in which counters are asked in one look: each gives up the interpreter, beside a busy thread for 5 ms."""
JOINING = "joining "
"""How the keys of groups begin that are not made yet."""


class Stand(NamedTuple):
    """A thread inside a collective."""

    operation: str
    """What waits, inside what the app called: of two names of one function the one that does it."""
    call_site: str
    since: float
    """When it was first seen there."""
    until: float
    """When a time-out ends it; infinite if none does, or that is not known."""
    among: tuple[int, ...]
    """The ranks that it needs; empty: all of the group."""
    is_quiet: bool
    """Whether this process has computed nothing since."""
    call: str | None = None
    """The call that the thread runs, or the driver; None for any other thread."""


class Membership(NamedTuple):
    """This process as a rank of a group."""

    key: str
    """The group's store, name and ranks: the same in every process of it."""
    name: str
    """For people: "world", what the app calls it, or torch's number."""
    size: int
    rank: int
    """In the world."""
    number: int = -1
    """How many operations it has begun there, on all its backends (gloo counts send and recv, too); -1: not known."""
    stand: Stand | None = None

    @property
    def what(self) -> str:
        """ "in torch.distributed.all_reduce, number 412 of group world"."""
        number = f"number {self.number} of " if self.number >= 0 else ""
        return "" if self.stand is None else f"in torch.distributed.{self.stand.operation}, {number}group {self.name}"


class Collectives:
    """Of this process."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[tuple[int, int, int], float, float]] = {}
        """By thread: what stays equal as long as it stands in one collective, since when, and the process's time then."""

    def look(
        self, frames: Mapping[int, FrameType], calls: Mapping[int, str], now: float, recording_s: float
    ) -> tuple[Membership, ...] | None:
        """One for each group; None if that is not known. `calls`: by thread; `recording_s`: our share of the process's time."""
        c10d = sys.modules.get(_C10D)
        if (world := getattr(c10d, "_world", None)) is None:
            return ()
        used_s, before, self.seen = time.process_time() - recording_s, self.seen, {}
        try:
            until = time.perf_counter() + _ASKING_S
            asked = list(world.pg_map)[: LIMITS.process_groups + 1]
            groups = {group: _membership(world, group, until) for group in asked}
            memberships = {one.key: one for one in groups.values()}
            for ident, inner in frames.items():
                if (inside := _inside(c10d, inner)) is None:
                    continue
                one = groups.get(inside.group) if inside.joins is None else inside.joins
                if one is None:
                    continue
                key = id(inside.frame), inside.frame.f_lasti, one.number
                last = before.get(ident)
                _, since, used = self.seen[ident] = last if last is not None and last[0] == key else (key, now, used_s)
                is_alone = one.key not in memberships or memberships[one.key].stand is None
                is_quiet = is_alone and used_s - used <= LIMITS.idle_cpu_share * (now - since)
                number = -1 if inside.inner in _UNCOUNTED or one.number == 0 else one.number
                stand = inside.stand(world, calls.get(ident), since, is_quiet=is_quiet)
                memberships[one.key] = one._replace(stand=stand, number=number)
        except Exception:  # a torch of another shape, or a group that is just made or destroyed
            return None
        return tuple(memberships.values()) if len(groups) <= LIMITS.process_groups else None


class _Inside(NamedTuple):
    """What a thread does in torch.distributed."""

    frame: FrameType
    """The outermost function of it."""
    inner: str
    """The innermost public one, with its variables:"""
    names: Mapping[str, Any]
    group: Any
    joins: Membership | None
    """Of a thread that is about to enter the first group."""

    def stand(self, world: Any, call: str | None, since: float, *, is_quiet: bool) -> Stand:
        """As it is told."""
        ranks = self.names.get("ranks") if self.inner == "new_group" else ()
        peer, peer_in_group = map(self.names.get, _PEERS.get(self.inner, ("", "")))
        if peer is not None:
            ranks = (peer,)
        elif peer_in_group is not None:
            ranks = (_ranks(world, self.group)[peer_in_group],)
        bound = self.names.get("timeout")
        seconds = bound.total_seconds() if isinstance(bound, timedelta) else _timeout_s(self.group)
        at = place(self.frame)
        site = "" if at is None else at.call_site
        return Stand(self.inner, site, since, since + seconds, tuple(ranks or ()), is_quiet, call)


def _inside(c10d: Any, inner: FrameType) -> _Inside | None:
    """None if a thread with this innermost frame is in nothing of torch.distributed."""
    functions = [frame for frame in outward(inner) if frame.f_globals is vars(c10d)]
    public = [frame for frame in functions if _COLLECTIVES.fullmatch(frame.f_code.co_name)]
    if not public:
        return None
    names = local_variables(
        public[0], "group", "timeout", "ranks", "rank", "world_size", "store", *_PEERS["send"], *_PEERS["recv"]
    )
    name, joins = public[0].f_code.co_name, None
    if name == _JOINS:
        connects = next((frame for frame in outward(inner) if frame.f_code.co_name == _CONNECTS), None)
        if connects is not None:
            names |= local_variables(connects, "rank", "world_size", "hostname", "port")
        where = _address(names.get("store")) if connects is None else _host(names["hostname"], names["port"])
        joins = Membership(f"{JOINING}{where}", "world", int(names["world_size"]), int(names["rank"]))
    return _Inside(public[-1], name, names, names.get("group") or c10d.GroupMember.WORLD, joins)


def _membership(world: Any, group: Any, until: float) -> Membership:
    ranks, about, number = _ranks(world, group), str(group.group_desc or ""), -1
    if type(group).__module__.startswith("torch.") and time.perf_counter() < until:  # it is asked of no code of the app
        with suppress(Exception):  # a backend that counts nothing
            number = sum(one._get_sequence_number_for_group() for one in _backends(group))
    name = "world" if about == "default_pg" else group.group_name if about in ("", "undefined") else about
    key = f"{_address(world.pg_map[group][1])} {group.group_name} {len(ranks)} {hash(ranks)}"
    return Membership(key, str(name), len(ranks), ranks[group.rank()], number)


def _backends(group: Any) -> set[Any]:
    return {group._get_backend(device) for device in group._device_types}


def _ranks(world: Any, group: Any) -> tuple[int, ...]:
    """The ranks of a group in the world, by their ranks in it."""
    ranks: Mapping[int, int] = world.pg_group_ranks[group]
    return tuple(sorted(ranks, key=ranks.__getitem__))


def _address(store: Any) -> str:
    """Where the ranks of a group have met."""
    while (below := getattr(store, "underlying_store", None)) is not None:
        store = below
    if (host := getattr(store, "host", None)) is not None:
        return _host(host, store.port)
    return str(getattr(store, "path", f"{type(store).__name__} of {socket.gethostname()} {os.getpid()}"))


def _host(host: str, port: int) -> str:
    is_here = host == "localhost" or host.startswith("127.") or host == "::1"
    return f"{socket.gethostname() if is_here else host}:{port}"


def _timeout_s(group: Any) -> float:
    """The time-out of a group's operations; infinite if it is not known."""
    with suppress(Exception):
        return float(max(one.options._timeout.total_seconds() for one in _backends(group)))
    return math.inf
