"""Compiled CPU training, one model per core at a time; the loops need numba (the extra "fast")."""
