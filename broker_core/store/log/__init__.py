"""The commit log: records in the order in which they were stored."""
