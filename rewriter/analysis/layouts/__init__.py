"""Which values are equal on all processes, which are a shard of the rows, and what is computed from them."""
