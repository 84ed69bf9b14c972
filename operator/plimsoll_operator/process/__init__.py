"""What all clusters of one operator process share: supervision, watches, its HTTP server."""
