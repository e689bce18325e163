"""Quantities of an input, with which variables are named and rules for answers are made."""
