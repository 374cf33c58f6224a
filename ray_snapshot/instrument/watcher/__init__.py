"""The actor that takes the snapshots of an app: what it knows of processes, tells them, and makes of their reports."""
