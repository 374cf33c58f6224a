"""Who chooses the steps of hosts with machines (`ray_snapshot.simulation.mail`): a seed, a script, or every order.

Read `schedules` first; `orders` and `marks` walk every order; `rows` makes a snapshot for detectors.
"""
