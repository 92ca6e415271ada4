"""Figures that a training loop collects over its steps, and what makes them those of all rows."""
