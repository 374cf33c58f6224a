"""Examples: small systems of machines, each a script that runs by itself and says what to look at.

They import `ray_snapshot` and nothing else of this repository, and nothing imports them but their tests and
the command `ray-snapshot demo`. Start with `bank.py`; `program.py` is the command line that several share.
"""
