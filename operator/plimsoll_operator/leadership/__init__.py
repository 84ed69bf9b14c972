"""Leadership of a cluster: the Lease, the term, evidence about pods and nodes."""
