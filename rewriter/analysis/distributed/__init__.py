"""Distribution by hand: process groups, ranks, wrappers, and what takes their place."""
