"""The compiled training loop (numba)."""
