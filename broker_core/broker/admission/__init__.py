"""Admission: the one door by which messages and changes from outside enter the core.

Problem. A client sends names, numbers and bytes, and the core keeps structure of its own in the
same log: half messages, op messages, decisions, delayed messages. If a client's data can pass for
that structure, it is believed. A check in each face (gRPC, remoting, console, command line) would
be forgotten in the next one.

Invariants, for everything that comes from outside, by whichever face, `file:` included:

1. A message goes to a queue that its topic's configuration has, of a topic that exists, is writable
   and is not one of the broker's own (codec/legal_names.is_own_topic is the one list).
2. It has none of the properties that the broker sets and believes (OWN_PROPERTIES).
3. A delayed message is the one exception to both: it lies in the schedule topic and says where it
   belongs, once, with a topic and a queue that satisfy 1, and a level that is its queue's
   (delayed.py).
4. Fields that only the broker knows have the broker's values: offsets, store time, hosts, prepared
   offset, and no transaction bits.
5. The caller has the right to publish to every topic that the messages are for.
6. Topics and consumer groups of the broker's own are not created, changed, deleted or moved
   (broker/admin.py asks `require_client_topic` and `require_client_group`).

Outline. `Door` (door.py) answers for one store: topics, queues, messages given as columns.
records.py admits encoded records of clients, few.py its twin for up to 64 of them. What a decision
or an end may name is ownership.py's to say (broker/transactions/). The store's writer is the last
line: whatever asks, no record makes a path of an illegal topic or a negative queue
(store/writer.py).
"""
