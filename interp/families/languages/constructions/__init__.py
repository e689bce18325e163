"""Exact models, with their proofs."""

from interp.families.languages.constructions import first as first
from interp.families.languages.constructions import one as one
from interp.families.languages.constructions import palindrome as palindrome
from interp.families.languages.constructions import parity as parity
