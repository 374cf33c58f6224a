"""The service of a system: one asynchronous Ray actor that coordinates and collects, and knows where machines live.

Numbers, deadlines and completeness are `ray_snapshot.protocol`'s; the service carries its effects out. `actor` is what
others may call; it is put together of `course` (open, closing, failed; changes to wait for), `directory` (hosts,
machines, declared channels), `orders` (what hosts and the driver are told), `hosts` (those that join or are gone),
`collecting` (snapshots), `recovery` (going back) and `telling` (word that a snapshot is kept). `clock`, `line` and
`handing_over` serve the watcher of an app, too.
"""
