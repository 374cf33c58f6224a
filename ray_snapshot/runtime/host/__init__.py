"""A Ray actor that carries machines.

Threads: Ray's event loop (arrivals, control, replies; never runs user methods) and the action threads, of which one at a
time holds the floor and runs one atomic action after the other. The core is touched only under the process's lock.

`actor` is the Ray actor; `post` puts a host together of its parts: `runner` (what comes next), `actions` (one action),
`stage` (which machine acts, which wait), `copier` (what a snapshot holds of a machine), `unchanged` (what was recorded of
machines that have not acted since; `alone`: who else could change them), `at_rest` (what is shown of machines that rest),
`recorder` (turning red, copying), `reporter` (when and how it is reported; `answers`), `waiting` (machines that wait inside
their actions), `held` (senders at full mailboxes), `stops`, `ports`, `replies`, `notices`.
"""
