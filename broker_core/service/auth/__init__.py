"""Users of a server: their identities and rights, their credentials, and TLS."""
