"""Routes: which brokers hold a topic, asked from name servers and remembered."""
