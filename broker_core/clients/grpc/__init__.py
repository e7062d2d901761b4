"""The client of our own server (`grpc://`): a broker somewhere else, used like one that is here."""
