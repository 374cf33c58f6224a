"""Hosts with machines that are pure functions, on `ray_snapshot.simulation.mail`: their world, and who chooses its steps.

Read `world` first, then `schedules`; `orders`, `sharing` and `marks` walk every order; `rows` makes a snapshot for detectors.
"""
