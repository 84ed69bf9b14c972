"""Topics: created by clients, declared by objects, deleted."""
