"""RocketMQ for Spark: `spark.readStream.format("rocketmq")` and the way back."""
