"""Actors that call each other, as Ray apps do: their world, programs, and the theorem for calls.

Read `world` first, then `schedules` and `oracle`.
"""
