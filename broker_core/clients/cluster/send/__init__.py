"""Sending: messages into a cluster's queues."""
