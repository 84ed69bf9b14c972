"""Transformations from DataFrame to DataFrame, without session, files or sockets."""
