"""The listeners: connections, their limits and memory, and who serves which request."""
