"""A deterministic world around `ray_snapshot.protocol`, in which every order can be tried.

`mail`: hosts with machines, and the theorem as a check; read `mail/world` first. `calls`: actors of a Ray app, and the theorem
for calls. `parties`: both in one system. `rollback`: a snapshot as the next generation of its world, with crashes. `following`
is one run under every protocol. `tokens` is what `ray-snapshot simulate` runs. Imports the standard library only.
"""
