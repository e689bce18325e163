"""Exact weights from proofs. Each proof has one file, which contains both the argument and the weights.

Each file that registers constructions is imported here.
"""

from interp.constructions import algorithmic_addition as algorithmic_addition
from interp.constructions import algorithmic_induction as algorithmic_induction
from interp.constructions import algorithmic_max_of_k as algorithmic_max_of_k
from interp.constructions import algorithmic_modular_addition as algorithmic_modular_addition
from interp.constructions import count01_minimal as count01_minimal
from interp.constructions import histogram_models as histogram_models
from interp.constructions import languages_first as languages_first
from interp.constructions import languages_one as languages_one
from interp.constructions import languages_palindrome as languages_palindrome
from interp.constructions import languages_parity as languages_parity
from interp.constructions import memorization_models as memorization_models
from interp.constructions.base import ConstructedWeights as ConstructedWeights
from interp.constructions.registry import Construct as Construct
from interp.constructions.registry import construct as construct
from interp.constructions.registry import register_construction as register_construction
from interp.constructions.registry import registered_constructions as registered_constructions
from interp.tasks.plugins import load_families as _load_families

_load_families("constructions")
