"""Which device, how things get there, and what precision the forward pass has."""
