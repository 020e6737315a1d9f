"""Models from and to other formats."""
