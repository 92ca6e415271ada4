"""Edits as data, and their application to the text."""
