"""Which values are equal on all processes, which are a share of the rows, and what becomes of them."""
