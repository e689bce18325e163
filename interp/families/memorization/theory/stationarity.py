"""Distribution of the contexts at each position: the condition that Proposition 1 needs and the paper omits."""

from typing import Any

import numpy as np
from jaxtyping import Float

from interp.errors import InterpError
from interp.families.memorization.theory.table import as_table


def advance(
    conditional: Float[np.ndarray, "contexts outputs"], prior: Float[np.ndarray, " contexts"], n_tokens: int, order: int
) -> Float[np.ndarray, " contexts"]:
    """Return the distribution of the k-token context one position later: drop the oldest token, append the next one."""
    joint = (prior[:, None] * conditional).reshape((n_tokens,) * (order + 1))
    return joint.sum(axis=0).reshape(-1)


def stationary_prior(
    conditional: Float[np.ndarray, "contexts outputs"], n_tokens: int, order: int
) -> Float[np.ndarray, " contexts"]:
    """Return a prior over contexts that `advance` does not change. It is unique for a table with full support.

    Raises InterpError if outputs and tokens differ in number: then no output can be fed back as a token.
    """
    _feedback(conditional.shape[1], n_tokens)
    n = len(conditional)
    transition = np.zeros((n, n))
    source = np.arange(n)
    for token in range(n_tokens):
        transition[source, (source * n_tokens) % n + token] += conditional[:, token]
    system = np.vstack([transition.T - np.eye(n), np.ones((1, n))])
    prior = np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=None)[0]
    prior = np.maximum(prior, 0)
    return prior / prior.sum()


def position_priors(table: Any, length: int, prior: Any = None) -> Float[np.ndarray, "positions contexts"]:
    """Return the context distribution before each predicted token, k + 1 .. length, of a sequence of `length` tokens.

    The first k tokens are drawn from the table's prior. The mean over positions is the prior for which the k-gram
    divergence d^{k+1} equals d^S for a model that reads only the context (erratum 2).
    """
    checked = as_table(table, prior)
    if not checked.complete:
        raise InterpError("the table lacks some contexts, so a sequence could leave it; give all n_tokens ** order")
    _feedback(checked.n_outputs, checked.n_tokens)
    priors = [checked.prior]
    for _ in range(length - checked.order - 1):
        priors.append(advance(checked.conditional, priors[-1], checked.n_tokens, checked.order))
    return np.stack(priors)


def proposition1_applies(table: Any, prior: Any = None, tolerance: float = 1e-10) -> bool:
    """Whether the k-gram prior is stationary, so that no model of width d has d^S below the best rank-d map's d^{k+1}.

    Printed without this condition, Proposition 1 is false: on a sticky chain that starts uniform a rank-1 map beats
    the rank-1 optimum of the initial prior. Source: Dana 2024, Proposition 1; erratum 2.
    """
    first, second = position_priors(table, as_table(table, prior).order + 2, prior)
    return bool(np.abs(first - second).sum() <= tolerance)


def _feedback(n_outputs: int, n_tokens: int) -> None:
    if n_outputs != n_tokens:
        raise InterpError(
            f"the table has {n_outputs} outputs and {n_tokens} tokens; to generate sequences they must be equally many"
        )
