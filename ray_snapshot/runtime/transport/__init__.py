"""How a process takes part in a run: what its parts share, batches over Ray, where machines live, sending.

`membership` (lock, event loop, generation, failure), `carrier` (batches of links), `places` (hosts of machines by name),
`trace_shipping`, and `post`, which sends. Hosts (`runtime.host`) and the driver (`runtime.driver`) are built on it.
"""
