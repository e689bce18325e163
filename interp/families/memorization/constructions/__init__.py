"""Exact models, with their proofs."""

from interp.families.memorization.constructions import capacity as capacity
from interp.families.memorization.constructions import corollary2 as corollary2
from interp.families.memorization.constructions import theorem1 as theorem1
