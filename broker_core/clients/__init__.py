"""The kinds of broker: an embedded store, our remote core, an Apache RocketMQ cluster."""
