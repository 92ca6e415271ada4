"""The rows, one file for each part of a library: what each operation is, and what its arguments mean."""
