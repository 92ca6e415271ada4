"""The rows, one file a part of a library: what each operation is, and which of its arguments says what."""
