"""One result, many reports. Each report is a function from a result to text; the command prints it."""
