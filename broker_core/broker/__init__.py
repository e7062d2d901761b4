"""Broker logic over a store: topics, consumer offsets, and what becomes of messages."""
