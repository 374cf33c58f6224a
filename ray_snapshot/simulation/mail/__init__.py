"""Hosts with machines that send each other messages: their world, and the theorem as a check.

Read `world` first, then `oracle`. `testing/hosted_runs` and `hosted_orders` choose the steps, or a test does (`tests/worlds`).
"""
