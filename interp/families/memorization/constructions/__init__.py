"""Exact models, with their proofs."""

from interp.families.memorization.constructions import models as models
