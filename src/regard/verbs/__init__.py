"""The commands: what is parsed, called and printed."""
