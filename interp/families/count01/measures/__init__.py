"""Measures of the heads of Count01 models."""
