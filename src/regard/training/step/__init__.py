"""One optimizer step, and what it costs."""
