"""The process groups of torch.distributed in which this process is a rank, and its threads that stand in a collective.

Read from what is there: the frames of torch's own functions, its table of groups, each group's counter and time-out, which the
backends return without waiting, and torch's flight recorder. Nothing of torch is imported or replaced, and no store is asked,
for that may block.

A thread may also stand behind a collective that it began before: in `Work.wait`, or in C++ that waits for it (the backward of
DDP). Which one that is only the flight recorder says: of the group that has operations under way, the first.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Any, NamedTuple

from ray_snapshot.instrument.process.called import awaited_object, call_names, local_variables
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.here import outward, place

_C10D, _IN_C = "torch.distributed.distributed_c10d", "torch._C._distributed_c10d"
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
_WAIT_IN_C = re.compile(r"torch\.(autograd\.graph|nn\.parallel\.distributed|distributed\.utils)")
"""Modules whose functions wait in C++ for collectives that were begun before."""
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
    begun: int = -1
    """How many operations this process has begun in the group, where this is not the last of them; else -1."""


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
                inside = _inside(c10d, inner) or _behind(c10d, inner, groups)
                one = None if inside is None else inside.joins or groups.get(inside.group)
                if inside is None or one is None:
                    continue
                key = id(inside.frame), inside.frame.f_lasti, inside.behind or one.number
                last = before.get(ident)
                is_same = (
                    last is not None and last[0][:2] == key[:2] and key[2] in (last[0][2], -1)
                )  # -1: it was not asked
                _, since, used = self.seen[ident] = last if last is not None and is_same else (key, now, used_s)
                is_alone = one.key not in memberships or memberships[one.key].stand is None
                is_quiet = is_alone and used_s - used <= LIMITS.idle_cpu_share * (now - since)
                if inside.in_c and not is_quiet:  # it computes there
                    continue
                is_known = inside.is_sure and inside.inner not in _UNCOUNTED and one.number != 0
                number = (inside.behind or one.number) if is_known else -1
                stand = inside.stand(world, calls.get(ident), since, is_quiet=is_quiet)
                begun = one.number if inside.behind else -1
                memberships[one.key] = one._replace(stand=stand._replace(begun=begun), number=number)
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
    joins: Membership | None = None
    """Of a thread that is about to enter the first group."""
    behind: int = 0
    """The number of the first operation under way, where it waits for one that was begun before; else 0."""
    is_sure: bool = True
    """Whether it waits for that one, or for one begun after it."""
    in_c: bool = False
    """Whether it is in a function that may as well compute."""

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


def _behind(c10d: Any, inner: FrameType, groups: Mapping[Any, Membership]) -> _Inside | None:
    """What a thread with this innermost frame waits for that was begun before; None if that is not known."""
    names = call_names(inner.f_code, inner.f_lasti)
    awaited = names[1:] if names is not None and names[0] == "wait" else None
    in_c = _WAIT_IN_C.fullmatch(str(inner.f_globals.get("__name__"))) is not None
    is_work = awaited is not None and issubclass(type(awaited_object(inner, *awaited)), c10d.Work)
    has_no_name = awaited is not None and not awaited[0]
    if not groups or not (in_c or is_work or has_no_name):
        return None
    under_way = list(_under_way(groups))
    if not under_way:
        begun = [group for group, one in groups.items() if one.number > 0]
        return _Inside(inner, "wait", {}, begun[0], behind=-1, is_sure=False) if is_work and len(begun) == 1 else None
    group, first, begun_count = under_way[0]
    operation = str(first["profiling_name"]).rpartition(":")[2]
    is_sure = is_work or (in_c and not getattr(sys.modules.get("torch.cuda"), "_initialized", False))
    is_sure &= len(under_way) == 1 and begun_count == groups[group].number
    is_sure &= _COLLECTIVES.fullmatch(operation) is not None
    return _Inside(inner, operation, {}, group, behind=int(first["collective_seq_id"]), is_sure=is_sure, in_c=in_c)


def _under_way(groups: Iterable[Any]) -> Iterator[tuple[Any, dict[str, Any], int]]:
    """Each group in which operations are under way, with the first that has not completed, by torch's flight recorder, and how
    many were begun there; -1 if it has not recorded all, as `send` and `recv`."""
    dump = getattr(sys.modules.get(_IN_C), "_dump_fr_trace_json", None)
    entries = json.loads(dump(True, False)).get("entries", ()) if dump is not None else ()
    for group in groups if entries else ():
        every = [one for one in entries if one["process_group"][0] == group.group_name]
        numbers = [int(one["collective_seq_id"]) for one in every]
        first = next((one for one in every if not (one["retired"] or one["state"] == "completed")), None)
        if first is not None:
            yield group, first, numbers[-1] if len(numbers) == numbers[-1] - numbers[0] + 1 else -1


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
