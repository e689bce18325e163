"""Figures of Count01 models."""
