"""Generates texts with a decoder: greedy and beam search, sampling, ensembles, and the forced pass for maps."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "beam": ["BeamSearch", "greedy"],
        "constraints": ["Constraints"],
        "decoder": ["Decoder"],
        "ensemble": ["Ensemble", "WeightedSum", "mean_log_probability", "mean_probability"],
        "teacher_forcing": ["force_decode"],
        "hypothesis": ["Hypothesis"],
        "ranking": ["AverageLength", "GNMTLength", "NoLength", "Ranking"],
        "sampling": ["Sampling"],
    },
)
