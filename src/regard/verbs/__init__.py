"""What the command line needs beyond the API."""
