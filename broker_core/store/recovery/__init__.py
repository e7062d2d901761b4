"""Recovery: what happens when a store is opened after a crash, and where a torn tail is cut.

Problem. A commit log, its consume queues and its index are separate files, and a writer can die
between any two writes; power can be lost with any part of them in memory only. The next writer must
find out how the store was left and make it whole before it appends, in time that does not grow with
the store if only a process died.

Kinds of recovery (`RecoveryKind`), what each trusts and what it changes. The first four go by the
tail marker, the last two by a scan of the log:

    NONE        the marker says that nothing was under way        nothing changes
    TAKE_BACK   a writer died while it wrote a batch to the log   the batch is cut from the log
    UNDO        a batch failed after it was dispatched            it leaves queues, index, then log
    FINISH      records are in the log, not all of them           queues and index get the rest;
                dispatched; perhaps a torn append behind them     what is torn is cut from the log
    NORMAL      the store was closed, but no marker tells so:     a torn end of the log is cut,
                everything consume queues have reached is         queues and index get what follows
                trusted                                           what the queues have reached
    ABNORMAL    the store was not closed: what the checkpoint     the log ends at the first record
                says is flushed is trusted, nothing after it      that is not valid; queues are
                                                                  compared with it from the scan's
                                                                  start on, index files after the
                                                                  checkpoint are rebuilt

Invariants.

- The log is the authority. Consume queues and index are derived from it, and are changed to agree.
- The log is cut at the first record that is not valid, as RocketMQ cuts it. Only damage in a
  cleanly closed log with whole messages behind it is an error instead: there, cutting would lose
  acknowledged messages.
- A plan is data and planning only reads. Readers without the lock lay a plan over the files of a
  crashed store (inspect.py); only the holder of the lock carries it out.
- Every step of a recovery can be repeated, and the marker is written after the last one. A crash
  during recovery is a crash before it.
- Records of a deleted topic never come back: a deletion notes where the log ended.

Outline, file by file:

    checkpoint.py            the format of the checkpoint file
    tail_marker.py           the format of the marker in its second half
    shutdown_state.py        how the last writer left the store, by these and `abort`
    plan.py                  which kind of recovery, where the scan starts, where the log ends
    queue_plan.py            which entries of a consume queue stay and which are written
    index_plan.py            from which index file and which record on the index is rebuilt
    recover.py               the deed: cuts the torn tail, writes entries and keys
    inspect.py               how readers see a store that was left unclean

A writer session plans and recovers when it first takes the lock, and whenever the marker is not its
own (session.py). A torn tail is found by log/scan.py, becomes `RecoveryPlan.log_end`, and is cut by
`recover.py`.

Rejected (decision 0003). A log of intentions in a file of its own: one more file to sync, for the
same states. Trusting file lengths or the last consume-queue entry: right after a crash as often as
not. Holding the lock for a writer's life: Spark tasks would exclude each other.
"""
