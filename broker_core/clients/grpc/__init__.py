"""The client of our own server (`grpc://`, `grpcs://`): the Broker protocol over gRPC."""
