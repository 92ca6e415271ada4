"""Mixed precision by hand: autocast regions, scalers, and their switches."""
