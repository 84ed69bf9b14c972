"""Parts that all clusters of one operator process share: supervision, watches, the HTTP server."""
