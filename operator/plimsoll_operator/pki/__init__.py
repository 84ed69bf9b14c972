"""Certificates: authorities, the certificates that they sign, and when each is renewed."""
