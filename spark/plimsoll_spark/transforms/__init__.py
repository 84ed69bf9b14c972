"""DataFrame in, DataFrame out: no session, no files, no sockets."""
