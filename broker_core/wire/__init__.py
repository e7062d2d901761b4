"""What goes over the network between the remote client and the broker's service."""
