"""Interp: take small transformers apart."""
