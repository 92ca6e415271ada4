"""Notebooks: their cells as one script, the training cells gathered for the launcher, and written back byte for
byte."""
