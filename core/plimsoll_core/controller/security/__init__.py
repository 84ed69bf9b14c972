"""The controller's decisions about users, credentials, ACLs and quotas."""
