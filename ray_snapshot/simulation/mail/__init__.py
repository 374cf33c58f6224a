"""Hosts with machines that send each other messages, and the theorem as a check.

Read `simulated` first, then `oracle`. `testing/hosted_runs` and `hosted_orders` choose the steps, or a test (`tests/worlds`).
"""
