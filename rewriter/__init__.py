"""The engine behind ``migrate``: reads Python source, understands it, edits it, and says why. Never imports torch."""
