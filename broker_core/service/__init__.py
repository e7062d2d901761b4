"""The broker as a server: the same core behind gRPC, for many clients at once."""
