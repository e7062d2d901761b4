"""Protocols, byte by byte: our own over gRPC (core/), and RocketMQ's remoting protocol."""
