"""The controller's decisions about topics: created by clients, declared by objects, deleted."""
