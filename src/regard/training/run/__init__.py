"""One run: its folder, checkpoints, log and progress."""
