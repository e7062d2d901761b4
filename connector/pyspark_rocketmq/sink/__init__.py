"""The sink: rows become messages in tasks, and the driver commits them."""
