"""Decide cheaply whether a program needs work, and whether the answer is known already. Standard library only."""
