"""`kubectl plimsoll`: what a cluster is doing and why, for people."""
