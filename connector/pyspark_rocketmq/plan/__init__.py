"""Planning: values in, values out. No Spark, no broker, no clock, no I/O."""
