"""Lets Spark find the source by itself: `format("rocketmq")` loads `pyspark_rocketmq.DefaultSource`."""

from connector import DefaultSource as DefaultSource
