"""Hosts with machines and processes with watched actors in one system: machines call actors, and actors send to machines.

Not here: processes that die, machines that are born, and timers; barriers, under which a host has no one colour.
"""
