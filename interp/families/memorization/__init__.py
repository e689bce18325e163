"""Memorization of conditional tables: bounds, optima and exact models (Dana 2024)."""

from interp.support.exports import exports

__getattr__, __dir__ = exports(
    __name__,
    {
        "tasks.conditional": "TableTask",
        "tasks.tables": "Bigram KGram LookupTask LowRank GivenTable bigram kgram lookup low_rank table",
        "theory.table": "ConditionalTable as_table dirichlet_table lookup_table low_rank_table",
        "theory.kl": "entropy kl_divergence accuracy memorized",
        "theory.spectrum": "head_contributions learned_directions singular_values subspace_angles zero_divergence_rank",
        "theory.rank_d": "least_squares newton_refinement weighted_least_squares",
        "theory.optimum": "rank_d_optimum",
        "theory.stationarity": "stationary_prior position_priors proposition1_applies",
        "theory.lookup": "lookup_construction",
        "theory.kl_bounds": "bounds_table lemma1",
        "theory.attention_heads": "accuracy_lower_bound attention_rank heads_needed memorized_associations",
    },
)
