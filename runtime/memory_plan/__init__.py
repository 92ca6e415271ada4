"""How much memory a training run needs, before it runs."""
