"""What authorization will ask for, once it is switched on."""
