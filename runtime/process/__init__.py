"""Which process this is, the group it belongs to, its random numbers, and who runs what."""
