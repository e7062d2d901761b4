"""Handlers of our own gRPC protocol."""
