"""One result, many faces. Each face is a function from a result to text; the command prints it."""
