"""The driver program's part in a run: a machine named `driver`, in a process that other processes cannot call.

A thread of its own runs an event loop: it awaits deliveries, asks the coordinator for commands (a long poll) and records.
The driver's sends are its actions, so it is at a boundary whenever the lock is free. Its program state is its own: a
snapshot holds its channels, its status and what it waits for, but no state.

`post` is the whole; `program` (which of the program's threads act, and which rest), `holding` (where they are held: at full
mailboxes, and while the system is rolled back), `recorder`; and where the system goes on by itself after a loss: `attending`
(the service and the analyst, started again), `memory` (what must outlive them), `securing` (the driver's own copy of what
the system goes back to).
"""
