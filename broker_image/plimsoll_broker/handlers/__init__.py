"""One module per API, or per family of APIs."""
