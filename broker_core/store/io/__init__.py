"""Files of a store: the seam to the operating system, segments, maps, open descriptors."""
