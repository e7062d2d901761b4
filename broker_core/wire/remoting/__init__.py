"""RocketMQ's remoting protocol: stated once, for clients, brokers and name servers."""
