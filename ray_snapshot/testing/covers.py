"""The ways in which a machine's mailboxes cover a join. Never imports Ray."""

from __future__ import annotations

from functools import lru_cache

from ray_snapshot.protocol.joins import run_of


@lru_cache(10_000)
def covers(
    ports: tuple[str, ...], pattern: tuple[str, ...], runs: tuple[tuple[int, tuple[str, ...]], ...]
) -> tuple[dict[str, tuple[int, int]], ...]:
    """Every way to take one message for each of these ports of a pattern: (cell, place in its queue) by port.

    `runs`: the methods at the front of each channel, as many as a pattern has ports.
    """
    if not ports:
        return ({},)
    found = []
    for cell, methods in runs:
        run = run_of(methods, pattern)
        for size in range(1, len(run) + 1):
            part = run[:size]
            if ports[0] in part and all(port in ports for port in part):
                rest = tuple(port for port in ports if port not in part)
                others = tuple(one for one in runs if one[0] != cell)
                here = {port: (cell, index) for index, port in enumerate(part)}
                found += [{**here, **more} for more in covers(rest, pattern, others)]
    return tuple(found)
