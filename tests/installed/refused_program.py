import ray_snapshot as rs


class Account(rs.SnapshotMixin):
    pass


class Till(rs.SnapshotMixin):
    pass


system = rs.System("bank", evry=1)
system = rs.System("bank", every=[1])
system = rs.System("bank", protocol="two-phase")
till: rs.MachineHandle[Till] = system.spawn(Account)
system.spawn(int)
system.snapshot(timeout="long")
rs.watch("app", protocol="observer")
print(system.wait_for("termination").hold)
rs.nonsense()
