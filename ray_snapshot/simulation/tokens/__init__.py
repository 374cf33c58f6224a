"""What `ray-snapshot simulate` runs: token-passing machines, their files, and the runs of those files."""
