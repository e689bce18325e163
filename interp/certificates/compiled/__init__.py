"""Compiled inner loops for certificates, one file per kernel. They need numba (the extra "fast")."""
