"""Benchmarks: ratios against a peer or a ceiling, both measured in one run. See figure.py."""
