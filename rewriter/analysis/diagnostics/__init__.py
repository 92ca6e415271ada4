"""What is said of a program: refusals, remarks, and what several processes do differently."""
