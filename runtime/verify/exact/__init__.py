"""Exact mode: what makes a run a function of its samples, so that runs on several processes can be compared."""
