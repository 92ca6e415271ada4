"""The engine of ``migrate``: reads Python source, analyses it, edits it, and reports the reasons. It never imports
torch."""
