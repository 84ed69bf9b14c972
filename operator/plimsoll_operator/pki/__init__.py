"""Certificates: authorities, what they sign, and when something of it is due."""
