"""Where the rows of a batch are in each value of a training step, read off the source."""
