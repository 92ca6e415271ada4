"""The sanitizer: records what each rank does, and reports what ranks do differently, or several times."""
