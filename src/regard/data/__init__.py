"""From files to batches: read, filter, encode, batch."""
