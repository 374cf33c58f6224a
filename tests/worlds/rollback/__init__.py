"""Systems that go back: a snapshot as the next generation of its world, and every death on the way.

`restoring` makes a world of a snapshot, `rolling_back` goes there step by step; `storms` and `flows` are seeded runs with
crashes; `recovering` plays what driver, service, analyst and hosts agree on when one of them dies.
"""
