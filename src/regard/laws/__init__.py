"""Laws that every mixer and position must obey.

A law is a function that takes a `Case` and raises `LawError`. The tests run them on everything that is registered,
`regard check plugin.py` runs them on a user's own parts.
"""
