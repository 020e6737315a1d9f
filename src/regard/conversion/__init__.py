"""Weights and tokenizers from and to the formats that others use."""
