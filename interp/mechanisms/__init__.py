"""Mechanisms: known ways to compute something, found in a model and tested by replacing a part by its ideal form."""

from interp.mechanisms.base import Finding, Proposal, mechanism, mechanisms
from interp.mechanisms.bench import Bench, Kept

__all__ = ["Bench", "Finding", "Kept", "Proposal", "mechanism", "mechanisms"]
