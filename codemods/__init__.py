"""The migration rules, one a file. ``catalogue.py`` lists them in the order of the diff."""
