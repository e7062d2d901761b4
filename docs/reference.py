"""Writes options.md and conditions.md from the tables in connector/; --check compares them."""

from __future__ import annotations

import sys

from connector.reference import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
