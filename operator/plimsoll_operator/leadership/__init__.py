"""Who leads a cluster and for how long: the Lease, the term, evidence about pods and nodes."""
