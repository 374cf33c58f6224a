"""Hosts with machines that send each other messages: their world, who chooses its steps, and the theorem as a check.

Read `world` first, then `schedules` and `oracle`; `orders`, `sharing` and `marks` walk every order.
"""
