"""What is known about a program: frozen data, no algorithms."""
