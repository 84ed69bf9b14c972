"""The APIs of groups and committed offsets, one a file."""
