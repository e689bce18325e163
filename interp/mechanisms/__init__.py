"""Mechanisms: known ways to compute something, recognized in a model and tested by substituting their ideal form."""

from interp.mechanisms.base import Finding, Proposal, mechanism, mechanisms
from interp.mechanisms.bench import Bench, Kept

__all__ = ["Bench", "Finding", "Kept", "Proposal", "mechanism", "mechanisms"]
