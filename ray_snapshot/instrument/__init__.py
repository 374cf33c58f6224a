"""Makes an existing Ray app snapshottable, without a change to it.

The only package that touches Ray's private names (all of them in `shape`). `process` holds this process's machine, `calls`
and `classes` put headers on calls and take them off, `tracking` follows waits, `watcher` is the Ray actor that collects,
`watching` the public face. Imports neither Spark nor the history.
"""
