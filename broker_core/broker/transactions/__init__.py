"""Transactions: messages that are durable before they are visible, singly and by the batch.

This text tells how one batch is committed exactly once, in the order in which it happens. Each step
names the function that does it; reading those from top to bottom is reading the whole path.

Problem. Spark writes a batch with many tasks and commits it with one call of its driver. It may run
a task twice, run a batch again with other tasks and receipts, abort a batch that it has committed,
and die between any two instructions. A batch must become visible once, whole. RocketMQ gives half
messages, which are durable and which no consumer reads; but its own end of a transaction is for one
message, and may be asked for twice.

Invariants.

1. A half message is *settled* if an op message lists it, else *open*. Whatever settles one is
   appended together with its op message, in one append, and an append is whole or not at all
   (store/writer.py). So "no op message" means "open", for every process and at every instant.
2. A batch is *decided* once a decision for it is in the log. From then on it is committed: all that
   the decision names becomes visible, and nothing else of this batch or an earlier one ever does.
3. An owner's batches are decided in the order of their numbers, and one is done before the next is
   decided. So its newest decision is all that must be known of its past.
4. What an append relies on is checked again under the store's lock, before anything is written
   (the `guard` of StoreWriter.append). If it does not hold any more, the append raises
   SettledElsewhereError, inside this package, and its caller starts over from the log's new state.

Outline.

Prepare. A task calls api.Transactions.prepare_batch, several times if it has much.
commit.BatchCommits.prepare packs its messages into half blocks of up to 1 MiB
(half_blocks.blocks_of; as_blocks for messages that came encoded) and appends them to the half
queue, the first time with an attempt record (decision_records.BatchAttempt): the attempt's id
begins the unique keys of its half messages, so check-back can tell which batch they belong to. The
task returns a receipt with the offsets of its half messages.

Decide. The driver calls api.Transactions.commit_batch with the receipts it accepts.
commit.BatchCommits.commit finds the newest decision of the stream (decision_lookup.DecisionLookup),
tells a repeat from a conflict or a gap (history.py), checks that what the receipts name is the
caller's (ownership.Claims.claim), finishes an earlier decision that is not done, and calls
`_decide`. The decision goes into the log together with the first copies and ops, if under the lock
the newest decision is still the one that was found and every half message named is open
(`_require_decidable`). If one is settled, it was rolled back: the batch is refused whole, with
IllegalTransitionError, and Spark writes it again. So it is if a topic of it is gone by now
(routes.py).

Make visible. settle.HalfSettler.commits reads half messages and makes settlements: visible copies
of all messages that they hold (unpack.visible_copies), then their op messages (op.op_messages). One
settlement has at most 100,000 half messages and about 32 MiB; `HalfSettler.settle` appends it. The
next is made ready, in another thread, while one is being appended. A batch of ordinary size is one
append:

    append 1    decision, copies, ops            from here on the batch is committed
    append 2    copies, ops                      (BatchFinisher.complete)
    append n    copies, ops, done

Note. The last append ends with a record that the decision is done. It is the newest record of its
owner from then on, and names no half messages any more. Retention appends it again before it
deletes the file it lies in (decision_retention.DecisionRetention.carry), as long as the batch may
be repeated; after a long time it leaves only the batch's number (forgotten.py).

Repeat. A commit or abort of a batch whose owner has a decision for it or a later one
(decision_records.Decision.supersedes) changes nothing: BatchCommits._repeat finishes that decision
if need be and rolls back the half messages that the repeat brought along. The caller is told
`is_repeat`.

Roll back. BatchCommits.abort settles half messages without copies, if the batch is not decided:
`roll_back` appends their op messages and nothing else.

Give up. Half messages that no receipt names (a task that died, the loser of a race) stay invisible
and open. check_back.CheckBack.round finds them. It finishes a decision that names them, rolls them
back if their batch was decided without them, and gives them up, with a copy in the discard topic,
when nothing was prepared for their batch for three days (`transactionBatchTimeOut`). Half messages
of single transactions (api.Transactions.prepare, producer.py) are asked about instead.

The lock. Messages are encoded, blocks packed, copies and ops made without it. StoreWriter.append
takes it for the guard and for writing one append; between the appends of a large batch it is free,
and other processes prepare, commit and send. Readers take no lock: of a batch in several appends
they see the first before the rest. A server holds the lock for life, and its threads take turns as
processes do.

What a crash leaves.

    it dies                        the log then has                  what follows
    in an append of `prepare`      nothing of that append            Spark runs the task again
    after it, or before a commit   open half messages                the batch is run again under
                                                                     other attempts; these are
                                                                     given up, or rolled back
                                                                     once the batch is decided
    in append 1                    nothing of it: not decided        Spark runs the batch again
    after append 1 of n            a decision, some copies           finished by the repeat, by the
                                                                     owner's next commit or by
                                                                     check-back, the first of them
    after append n                 all of it                         a repeat changes nothing
    while finishing                some more copies, each with       the next one finishes
                                   the op of its half message

"Dies in an append" means before all of it is in the log; later, recovery finishes it. Losing power
is the exception to invariant 1: it cuts the log anywhere, so copies may be there without their op
message, of a block even some and not the rest. BatchFinisher.finish (finish.py) therefore first
looks for copies by the prepared offset that each carries (HalfSettler.copied), and appends only
those that are missing. With flush="sync" nothing that was acknowledged is cut off.

Rejected (docs/decisions/0004-batches-decided-in-the-log.md, 0011-half-blocks.md).

- Finding decisions by the index: Apache's recovery may drop index entries, and a decision that is
  not found would be made twice.
- Query, batch and attempt as properties of each half message: a hundred bytes a message, twice.
- One half message for each message of a batch: as much work as sending it, for something that is
  never looked at alone. Stores that have such are still read.
- An immunity time against check-back: Apache's broker puts immune messages back every 30 seconds.
"""
