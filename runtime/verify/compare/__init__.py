"""Pure functions from traces to outcomes, one promise a function."""
