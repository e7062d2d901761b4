"""Where Spark finds the source: it loads the `DefaultSource` of every `pyspark_*` module."""

from connector import DefaultSource

__all__ = ["DefaultSource"]
