"""Measures of these models."""
