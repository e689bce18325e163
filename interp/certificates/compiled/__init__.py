"""Compiled loops of certificates: one file per kernel. They need numba (the extra "fast")."""
