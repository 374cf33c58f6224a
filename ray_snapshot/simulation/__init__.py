"""A deterministic world around `ray_snapshot.protocol`, in which every order can be tried.

`mail`: hosts with machines, and a check of their snapshots; read `mail/simulated` first. `tokens` is what
`ray-snapshot simulate` runs. The worlds that only proofs need are in `tests/worlds`. Imports the standard library only.
"""
