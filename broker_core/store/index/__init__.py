"""Index files: records by topic and key."""
