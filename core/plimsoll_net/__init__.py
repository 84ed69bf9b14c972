"""Connections with TLS, for the broker and the operator: the only package that imports `ssl`.

`tls_policy` makes TLS contexts, `shown_certificate` keeps the current context of a listener,
`handshakes` admits connections and runs their handshakes, `tls_connection` encrypts and decrypts,
and `tls_transport` limits how fast data is encrypted. `http_bounds` limits what peers of the HTTP
ports, which have no TLS, can hold. The package knows no requests, opens no sockets, and reads no
clock but the event loop's.
"""
