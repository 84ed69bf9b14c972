"""The controller's decisions: each takes an image and a request, and returns records.

Callers use `decide.decide`, which calls the module for the request. Decisions never change an image
in place.
"""
