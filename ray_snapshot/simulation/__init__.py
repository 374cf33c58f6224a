"""A deterministic world around `ray_snapshot.protocol`, in which every order can be tried.

Read `world` first (hosts, network, steps), then `schedules` (who chooses: a seed, a script, everyone) and `oracle` (the
theorem, as a check). `restoring` makes a snapshot the next generation of its world; `storms`, `flows` and `following` are
seeded runs with crashes and rollbacks, and of one run under every protocol. `tokens`, `scripts` and `playing` are what
`ray-snapshot simulate` runs. Imports the standard library only.
"""
