"""Settings: read from arguments and from the environment once, then frozen."""
