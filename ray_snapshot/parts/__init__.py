"""What hosts report of a snapshot, and what completes it: once, for Ray and for the simulator.

`reporting` walks a recording: it counts each link, and shows every machine, channel end and message to the rows that are
made of it, Arrow columns on Ray, plain values in the simulator. Imports neither Ray nor Arrow.
"""
