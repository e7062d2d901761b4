"""RocketMQ's SQL92 filter language: text → tokens → tree → verdicts, one by one or by columns."""
