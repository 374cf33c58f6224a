"""Makes an existing Ray app snapshottable, without a change to it.

The only package that touches Ray's private names (in `shape`, and the files that docs/architecture.md names). `process` holds
this process's machine, `hooks` put headers on calls, take them off and follow waits, `watcher` is the Ray actor that collects,
`watching` the public face. Imports neither Spark nor the history.
"""
