"""The rewriter's side of `--verify`: the request to the runtime, and its verdict."""
