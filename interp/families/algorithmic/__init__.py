"""Classic algorithmic tasks: addition, addition mod p, max-of-k, induction."""

from interp.support.exports import exports

__getattr__, __dir__ = exports(
    __name__,
    {
        "tasks.addition": "Addition",
        "tasks.induction": "Induction",
        "tasks.max_of_k": "MaxAtLast MaxOfK",
        "tasks.modular_addition": "ModularAddition",
    },
)
