"""From facts to decisions: where the accelerator lives, how it gets everywhere, what is prepared where."""
