"""The listeners: connections, their limits and memory, and the dispatch of requests."""
