"""`kubectl plimsoll`: shows people the state of a cluster and its causes."""
