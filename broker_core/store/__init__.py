"""The store engine: commit log, consume queues, index files, and what keeps them consistent.

An append goes through writer.py (batch.py holds the encoded records), session.py (the lock and the
tail marker), log/writer.py, dispatch.py, queue/writer.py and index/writer.py. A read goes through
reader.py, queue/view.py, queue/consume_queue.py and log/commit_log.py, a lookup by key through
index/view.py. All of them change or map files through io/. After an unclean stop recovery/ plans
and carries out the repair; check/ examines a store without changing it.
"""
