"""What the cluster's state looks like from outside: status, Events, metrics.  Never read back."""
