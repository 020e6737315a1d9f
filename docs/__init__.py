"""The documentation: pages, and what generates some of them."""
