"""Files: the only modules that ask the operating system for them."""
