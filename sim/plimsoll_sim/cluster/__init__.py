"""A whole simulated cluster: what it is built from, how it is stepped, what befalls machines."""
