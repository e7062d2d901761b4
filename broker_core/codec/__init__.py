"""The commit-log record and its columns: one statement of the layout, scalar and columnar."""
