"""Hosts with machines that send each other messages, and what is right of a snapshot by its run.

Read `simulated` first, then `oracle`. `testing/hosted_runs` and `hosted_orders` choose the steps, or a test (`tests/worlds`).
"""
