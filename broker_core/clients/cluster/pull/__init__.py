"""Pulling: ranges of a cluster's queues as frame batches."""
