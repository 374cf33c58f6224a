"""What people look at: `tables` prints rows and verdicts, for a terminal, a pipe or a program."""
