"""A hang that nobody prepared for: what Ray's own records and the processes themselves tell of it from outside.

Two looks at the control store some seconds apart (`records`), the processes on their nodes in between (`evidence`, `stacks`),
a wait-for graph that is only *suspected* (`graph`), and its words (`report`). Read `looking` first. Nothing gets into the app.
"""
