"""What the verbs of the command line do, as plain functions; `cli.py` only reads arguments."""
