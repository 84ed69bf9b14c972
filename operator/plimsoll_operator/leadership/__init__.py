"""Leadership of a cluster: the Lease, the term, and evidence about pods and nodes."""
