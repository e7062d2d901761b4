"""The source: micro-batches and batch reads, planned on the driver and read in tasks."""
