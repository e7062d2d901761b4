"""Connections to the servers of a cluster."""
