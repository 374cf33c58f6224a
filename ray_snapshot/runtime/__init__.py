"""Ray: the only folder (beside `instrument`) that imports it.

Read `post` first (what a process needs to take part: the core of `ray_snapshot.protocol.host`, a lock, and the transport),
then `host` (what carries machines; `host_actor` is its Ray actor), `driver`, `service` (coordinator and collector),
`analyst` (detector service and history) and `system` (what users hold).
"""
