"""Loaders: which rows each process sees, and what is known about every batch."""
