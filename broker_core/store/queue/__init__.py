"""Consume queues: LogicalOffsets of one queue, and where their records lie in the commit log."""
