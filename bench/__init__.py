"""Measurements: speed beside peers, results of runs, and the README's tables made from them. Not part of the package."""
