"""Exact models, with their proofs."""

from interp.families.histogram.constructions import models as models
