"""Write docs/performance.md, its plots and the README's figures; --check compares them."""

from __future__ import annotations

import sys

from tests.bench.report import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
