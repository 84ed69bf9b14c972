"""The connection to the controller, and the metadata that come over it."""
