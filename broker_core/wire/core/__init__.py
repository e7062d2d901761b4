"""Our own gRPC protocol: its messages, its frames, its methods and its status codes."""
