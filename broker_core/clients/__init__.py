"""Clients of brokers behind a network, and the way from an address to an open broker."""
