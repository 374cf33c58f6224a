"""The witness: Dijkstra's theorem (EWD864a), carried out on the trace of a run that really happened.

Read `log` (the trace as actions, in a causal order), then `stage` (fresh machines, without hosts, links or colours), then
`proof` (white actions, snapshot, red actions). Nothing here imports Ray or shares code with the protocols: what would
be wrong there would otherwise be wrong here in the same way.
"""
