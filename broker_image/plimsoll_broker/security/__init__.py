"""The identities of connected clients, and their rights by the committed rules."""
