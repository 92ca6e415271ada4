"""The command: what the user says, what is shown, what is written, and the exit status."""
