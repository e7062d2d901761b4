"""Loops over records that Numba compiles.

availability.py is the door: callers ask it whether a batch is worth a kernel. arguments.py makes
the arrays that kernels take. compiler.py compiles; only modules of kernels import it, and so Numba.
"""
