"""The committed state of a cluster: the records, the image that they make, and its invariants."""
