"""Ray: the only folder (beside `instrument`) that imports it.

Read `transport` first (what a process needs to take part: the core of `ray_snapshot.protocol.host`, a lock, and the links),
then `host` (what carries machines), `driver` (the program's own part), `service` (coordinator and collector), `analyst`
(detector service and history) and `system` (what users hold).
"""
