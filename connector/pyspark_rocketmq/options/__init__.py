"""Options: the texts that users give, and the typed values they mean."""
