"""RocketMQ's SQL92 filter language: text → tokens → tree → verdicts.

Two evaluators state the rules twice: scalar.py for single messages, and as the reference;
columnar.py for batches, which is every read. Property tests hold them equal.
"""
