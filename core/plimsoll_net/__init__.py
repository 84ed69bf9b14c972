"""Connections with TLS for both shells: the only package that imports `ssl`.

`tls_policy` makes a context, `shown_certificate` keeps the current one of a listener, `handshakes`
admits connections and has them shake hands, `tls_connection` encrypts and decrypts, `tls_transport`
paces what is sent.  `http_bounds` bounds what peers of the HTTP ports hold, which have no TLS.
Nothing here knows a request, opens a socket or reads a clock but the event
loop's.
"""
