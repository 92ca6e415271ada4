"""Notebooks: their cells as one script, the training cells gathered for the launcher, and back again byte for byte."""
