"""The broker as a server: one store behind gRPC, for many clients at once."""
