"""This broker's reports to the controller about its replicas."""
