"""Check: a whole store read, and everything reported that is not as it must be."""
