"""Ways of keeping the model equal on all processes."""
