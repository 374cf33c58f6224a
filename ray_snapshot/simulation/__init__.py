"""A deterministic world around `ray_snapshot.protocol`, in which every order can be tried.

`mail`: hosts with machines, and the theorem as a check; read `mail/world` first. `tokens` is what `ray-snapshot simulate` runs.
The worlds of actors, of both together and of recovery are in `tests/worlds`. Imports the standard library only.
"""
