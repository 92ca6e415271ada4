"""Edits as values, and their application to the text."""
