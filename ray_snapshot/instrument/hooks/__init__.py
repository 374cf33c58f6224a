"""What stands in the place of Ray's functions in the processes of an app: calls, waits, and what puts it there."""
