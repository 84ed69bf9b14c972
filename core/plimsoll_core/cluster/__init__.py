"""What is committed: the records, the image that they make, and its invariants.  All read it."""
