"""What exists only for scripts that come from Accelerate."""
