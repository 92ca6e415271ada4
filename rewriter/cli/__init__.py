"""The ``migrate`` command: arguments, output, written files, and the exit status."""
