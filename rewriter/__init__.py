"""The engine of ``migrate``: reads Python source, analyses it, edits it, and gives the reasons. Never imports torch."""
