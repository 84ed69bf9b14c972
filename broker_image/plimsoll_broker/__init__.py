"""The broker: storage, server, fetchers and a controller client around the replica core."""
