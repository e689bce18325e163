"""Pure maths, with no model in it: frames, exact ranges, divergences of tables and their optima, bounds."""

from __future__ import annotations

from importlib import import_module

# name -> module of this package; nothing is imported before it is asked for
_EXPORTS: dict[str, str] = {
    # memorization: tables, divergences, optima
    "ConditionalTable": "table",
    "as_table": "table",
    "dirichlet_table": "table_generators",
    "lookup_table": "table_generators",
    "low_rank_table": "table_generators",
    "entropy": "kl",
    "kl_divergence": "kl",
    "accuracy": "kl",
    "memorized": "kl",
    "singular_values": "spectrum",
    "zero_divergence_rank": "spectrum",
    "subspace_angles": "spectrum",
    "least_squares": "closed_forms",
    "weighted_least_squares": "closed_forms",
    "newton_refinement": "newton",
    "rank_d_optimum": "optimum",
    "stationary_prior": "stationarity",
    "position_priors": "stationarity",
    "proposition1_applies": "stationarity",
    "lookup_construction": "lookup",
    "bounds_table": "kl_bounds",
    "lemma1": "kl_bounds",
    "attention_rank": "attention_heads",
    "heads_needed": "attention_heads",
    "memorized_associations": "capacity",
    "accuracy_lower_bound": "capacity",
    "head_contributions": "decomposition",
    "learned_directions": "decomposition",
    # histogram: bounds, frames, exact ranges, readout
    "feasibility": "histogram_bounds",
    "welch_bound": "frames",
    "one_sided_bound": "frames",
    "squared_bound": "frames",
    "mutual_coherence": "frames",
    "overlaps": "frames",
    "simplex_sum": "frames",
    "equiangular_frame": "frames",
    "binary_code": "frames",
    "circle_points": "frames",
    "search_frame": "frame_search",
    "frame_slack": "frame_search",
    "frame_for": "frame_cache",
    "kappa_threshold": "kappa",
    "hidden_ranges": "ranges",
    "token_mixing": "ranges",
    "scalar_readout": "readout",
    "separate": "readout",
}


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
