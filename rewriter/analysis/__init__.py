"""Pure functions from syntax to facts."""
