"""What travels over networks: our own gRPC protocol and RocketMQ's remoting protocol."""
