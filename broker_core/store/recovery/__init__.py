"""Recovery: how a store was left, what must change so that it is whole, and the change itself."""
