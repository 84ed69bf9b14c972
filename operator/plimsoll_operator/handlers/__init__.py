"""One module per kind of work: gather, decide, commit.  Called by a term's reconcile queue."""
