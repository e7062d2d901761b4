"""Consume queues: LogicalOffset to PhysicalOffset, one directory of entries per queue."""
