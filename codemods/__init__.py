"""The migration rules, one per file. ``catalogue.py`` lists them in the order of the diff."""
