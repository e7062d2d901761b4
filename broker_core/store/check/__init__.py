"""Check: reads a whole store and reports everything that is wrong; `rocketmq-broker check`."""
