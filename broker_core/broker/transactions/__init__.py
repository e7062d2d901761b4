"""Transactions: half messages, op messages, and batches that become visible by one decision."""
