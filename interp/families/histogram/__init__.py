"""The histogram task: how often does each token of a sequence occur in it? (Behrens et al. 2024)"""

from interp.support.exports import exports

__getattr__, __dir__ = exports(
    __name__,
    {
        "tasks": "Histogram",
        "theory.bounds": "feasibility",
        "theory.frames": "welch_bound one_sided_bound squared_bound mutual_coherence overlaps simplex_sum "
        "binary_code circle_points kappa_threshold",
        "theory.frame_search": "search_frame frame_slack frame_for",
        "theory.ranges": "token_mixing",
        "constructions.readout": "scalar_readout separate",
    },
)
