"""The LogCluster: members, volumes, children, releases, its metadata log."""
