"""Is there anything to do, and was it answered before? The standard library alone."""
