"""The rewriter's side of `--verify`: what is asked, and what is made of the answer."""
