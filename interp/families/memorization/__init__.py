"""Memorization of conditional tables: bounds, optima and exact models (Dana 2024)."""

from interp.families import exports

__getattr__, __dir__ = exports(
    __name__,
    {
        "tasks.conditional": "TableTask",
        "tasks.tables": "Bigram KGram LookupTask LowRank GivenTable bigram kgram lookup low_rank table",
        "theory.table": "ConditionalTable as_table dirichlet_table lookup_table low_rank_table",
        "theory.kl": "entropy kl_divergence accuracy memorized",
        "theory.spectrum": "singular_values zero_divergence_rank subspace_angles",
        "theory.closed_forms": "least_squares weighted_least_squares",
        "theory.newton": "newton_refinement",
        "theory.optimum": "rank_d_optimum",
        "theory.stationarity": "stationary_prior position_priors proposition1_applies",
        "theory.lookup": "lookup_construction",
        "theory.kl_bounds": "bounds_table lemma1",
        "theory.attention_heads": "attention_rank heads_needed",
        "theory.capacity": "memorized_associations accuracy_lower_bound",
        "theory.decomposition": "head_contributions learned_directions",
    },
)
