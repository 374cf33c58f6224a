"""A program that passes tokens on until it is told to end: HISTORY ADDRESS; it prints a line when it works."""

import sys
import time

from restore_machines import total_of, vaults

import ray_snapshot as rs

history, address = sys.argv[1], sys.argv[2]

with rs.System("ending", history=history, address=address, checkpoint=True, detectors=[]) as system:
    machines = vaults(system, 4, 100, per_host=2)
    system.start()
    if system.restored:
        print(total_of(system.snapshot()), flush=True)
        sys.exit(0)
    for machine in machines:
        machine.pass_on.send(1, 10**9)
    print("working", flush=True)
    while True:
        time.sleep(0.01)
