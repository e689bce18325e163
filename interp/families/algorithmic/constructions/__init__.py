"""Exact models, with their proofs."""

from interp.families.algorithmic.constructions import addition as addition
from interp.families.algorithmic.constructions import induction as induction
from interp.families.algorithmic.constructions import max_of_k as max_of_k
from interp.families.algorithmic.constructions import modular_addition as modular_addition
