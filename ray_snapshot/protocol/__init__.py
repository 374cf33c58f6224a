"""The snapshot protocols, pure: no Ray, no clock, no thread, no I/O. Events in, effects out.

Read `chandy_lamport` first: when a host turns red. Then `mailbox` and `links` (how messages travel), `host` (one host's
machines, mailboxes and links around the protocol), `coordinator` (numbers, and when a snapshot is complete), `collector` (when
the hosts are) and `call_collector` (when the processes of watched actors are).
The same code runs under `ray_snapshot.simulation` and under `ray_snapshot.runtime`. Imports the standard library only.
"""
