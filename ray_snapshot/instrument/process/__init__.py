"""One process of a watched app: its ledger, its loop and threads, its state, and its way to the watcher and back in time."""
