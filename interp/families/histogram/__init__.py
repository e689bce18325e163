"""The histogram task: how often does each token of a sequence occur in it? (Behrens et al. 2024)"""

from interp.families import exports

__getattr__, __dir__ = exports(
    __name__,
    {
        "Histogram": "tasks",
        "feasibility": "theory.bounds",
        "welch_bound": "theory.frames",
        "one_sided_bound": "theory.frames",
        "squared_bound": "theory.frames",
        "mutual_coherence": "theory.frames",
        "overlaps": "theory.frames",
        "simplex_sum": "theory.frames",
        "equiangular_frame": "theory.frames",
        "binary_code": "theory.frames",
        "circle_points": "theory.frames",
        "search_frame": "theory.frame_search",
        "frame_slack": "theory.frame_search",
        "frame_for": "theory.frame_cache",
        "kappa_threshold": "theory.kappa",
        "hidden_ranges": "theory.ranges",
        "token_mixing": "theory.ranges",
        "scalar_readout": "theory.readout",
        "separate": "theory.readout",
    },
)
