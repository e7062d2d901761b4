"""The source: micro-batches and batch reads, planned on the driver and read in tasks.

    driver   stream (Spark's calls) → microbatch (a query's run) ┐
             batch (Spark's calls)  ────────────────────────────┴→ offset_reader (asks the broker),
                                                                    plan/ (decides)
    both     partition (what travels to a task)
    task     partition_reader (a range), lookup (by key or id, through the index)

`schema` has the columns; `lag` exports a query's lag.
"""
