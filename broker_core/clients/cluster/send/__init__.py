"""Sending: messages to a cluster, acknowledged. The way in is sender.py."""
