"""Delayed messages: levels, and their delivery when they are due."""
