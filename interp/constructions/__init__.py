"""Exact weights from proofs. Each proof has one file, which contains both the argument and the weights.

Each file that registers constructions is imported here.
"""

from interp.constructions.registry import Construct as Construct
from interp.constructions.registry import ConstructedWeights as ConstructedWeights
from interp.constructions.registry import construct as construct
from interp.constructions.registry import register_construction as register_construction
from interp.constructions.registry import registered_constructions as registered_constructions
from interp.tasks.plugins import load_families as _load_families

_load_families("constructions")
