"""Which programs there are, what files make them up, and one answer for each file that several of them share."""
