"""The store engine: commit log, consume queues, index files, and what keeps them consistent."""
