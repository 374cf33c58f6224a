"""A program with a system of its own on a running cluster: NAME ADDRESS; stays until its stdin ends."""

from __future__ import annotations

import sys

import ray_snapshot as rs

if __name__ == "__main__":
    with rs.System(sys.argv[1], address=sys.argv[2], detectors=[]) as system:
        print(system.name, flush=True)
        sys.stdin.read()
