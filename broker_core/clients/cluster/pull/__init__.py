"""Pulling: ranges of a cluster's queues as frame batches. The way in is puller.py."""
