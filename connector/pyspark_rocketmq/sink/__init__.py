"""The sink: rows become messages in tasks, and the driver commits them.

    task     writer (Spark's calls) → identity (which batch), task → rows → texts → the broker
    driver   writer (Spark's calls) → schema (before any task), commit (after the last)

task.py says what a task that dies leaves, commit.py what a driver that dies leaves,
batch_identity.py how a replayed batch is recognised, fingerprint.py how one that only has its
number is told from it.
"""
