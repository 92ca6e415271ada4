"""What an operation does: one frozen class for each kind of row. Its fields are the options of the row."""
