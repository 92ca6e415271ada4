"""Which programs exist, which files belong to them, and one result for each file that several of them share."""
