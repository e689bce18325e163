"""Classic algorithmic tasks: addition, addition mod p, max-of-k, induction."""

from interp.families import exports

__getattr__, __dir__ = exports(
    __name__,
    {
        "Addition": "tasks.addition",
        "Induction": "tasks.induction",
        "MaxAtLast": "tasks.max_of_k",
        "MaxOfK": "tasks.max_of_k",
        "ModularAddition": "tasks.modular_addition",
    },
)
