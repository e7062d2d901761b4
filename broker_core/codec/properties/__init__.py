"""Properties of messages: one text per record, read and written by rows or by columns."""
