"""The protocols by name, and the core of a host for each.

name                    file            needs of the channels     a snapshot is started by
chandy-lamport          chandy_lamport  FIFO                      any initiators, by default every host
observer                observer        nothing                   the observer, which asks everybody
aligned-barrier         barriers        FIFO, declared inputs     the sources
unaligned-barrier       barriers        FIFO                      the sources
at-least-once-barrier   barriers        FIFO, declared inputs     the sources
"""

from __future__ import annotations

from typing import Any

from ray_snapshot.names import CALLS
from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.barriers import Mode
from ray_snapshot.protocol.chandy_lamport import ChandyLamport
from ray_snapshot.protocol.colours import Colour, Colours
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.observer import Observer
from ray_snapshot.protocol.turning import Turning

CHANDY_LAMPORT, OBSERVER = "chandy-lamport", "observer"
ALIGNED, UNALIGNED, AT_LEAST_ONCE = BARRIERS = tuple(mode.value for mode in Mode)
PROTOCOLS = (CHANDY_LAMPORT, OBSERVER, *BARRIERS)

RECORDED_BY = {CHANDY_LAMPORT: "marker", OBSERVER: "observer", CALLS: "sender", **dict.fromkeys(BARRIERS, "barrier")}
"""What finds the messages in flight: the words of the column `recorded_by`."""


def core_for(
    protocol: str,
    host: str,
    *,
    colours: Colours | None = None,
    born: Colour | None = None,
    barriers: dict[str, Any] | None = None,
    turning: Turning | None = None,
    life: int = 0,
    **options: Any,
) -> HostCore:
    """The core of a host under this protocol; `barriers` are options that only `BarrierCore` has.

    `turning`: that of a ledger in the same process, `life`: of the ledgers of its machines; not under barriers, where each
    machine has a colour of its own.
    """
    if protocol == CHANDY_LAMPORT:
        return HostCore(host, protocol=ChandyLamport(colours, born, turning), life=life, **options)
    if protocol == OBSERVER:
        return HostCore(host, protocol=Observer(colours, born, turning), life=life, **options)
    return BarrierCore(host, Mode(protocol), colours=colours, born=born, **(barriers or {}), **options)
