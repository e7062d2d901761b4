"""Loops over records that Numba compiles: when they run, how they are compiled, what they take."""
