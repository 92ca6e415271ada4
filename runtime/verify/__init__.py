"""Run a training script and its migrated text, trace both without editing either, and compare what they computed."""
