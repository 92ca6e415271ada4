"""What is known of names outside the program."""
