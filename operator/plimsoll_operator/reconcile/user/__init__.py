"""Users: commits logins, certificates, rules and quotas of User objects."""
