"""Batches that a script makes without a loader, and where they are cut into shards."""
