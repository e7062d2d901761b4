"""Admission: the one door by which messages from outside enter the core."""
