"""What notices faults at run time: weights that drift apart, what was not prepared, rows that all ranks read."""
