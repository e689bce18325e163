"""The largest of K numbers by one head in two dimensions: attention grows with the number, and the average is rounded.

The residual directions are "number" and "=": number t is embedded as (t, 0), and '=' as (0, 1). The query of '=' is
beta, and the key of a number is the number itself. So the score of t is beta t, and '=' counts as one more 0, which
does not change the maximum. The head writes y, the average of the numbers with weights proportional to e^(beta t).
Logit j is 2 j y - j^2 = y^2 - (y - j)^2, so **the answer is y rounded to a whole number.**

Let m be the maximum, x = K e^-beta < 1 and E = x / (1 + x) < 1/2. Divide all weights by e^(beta m). One token with m
then has weight 1. Each of the other K tokens, including '=', is delta = 0, 1, 2, ... below m and has the weight
w = e^(-beta delta). Then

    m - y = sum w delta / (1 + sum w) <= E    if and only if    sum w (delta - E) <= E.

Each of the K terms is at most e^-beta (1 - E): for delta = 0 it is negative, and for delta = 1 it is equal. For
delta >= 2 this means e^(beta (delta - 1)) >= (delta - E) / (1 - E). The left side is at least 3^(delta - 1) for
beta >= ln 3, and the right side is at most 2 delta - 1 <= 3^(delta - 1). So the sum is at most K e^-beta (1 - E) =
x / (1 + x) = E.

As y is in [m - E, m], logit m leads logit m - 1 by 1 - 2 (m - y), and all others by more. So the model is right on
every input if beta > ln K and beta >= ln 3, **with the margin 1 - 2 E = (1 - x) / (1 + x) = tanh((beta - ln K) / 2)**.
One 1 and K - 1 zeros attain this margin.
"""

import math

import torch

from interp.errors import InterpError
from interp.families.algorithmic.tasks.max_of_k import MaxOfK
from interp.models.constructions import Construct, ConstructedWeights, register_construction
from interp.models.spec import Layer


@register_construction("algorithmic/max-of-k-exact")
def max_of_k(K: int = 4, v: int = 64, beta: float = 8.0) -> Construct:
    """The largest of K numbers below v, in two dimensions: a sharp average, rounded; margin tanh((beta - ln K) / 2).

    beta: how much the score grows from one number to the next. Raises InterpError unless beta > ln K and >= ln 3.
    """
    task, beta = MaxOfK(K=K, v=v), float(beta)
    if not max(math.log(K), math.log(3) - 1e-15) < beta < math.inf:
        raise InterpError(f"beta = {beta} must be above ln K = {math.log(K):.4f} and at least ln 3 = {math.log(3):.4f}")
    numbers = torch.arange(v, dtype=torch.float64)
    embedding = torch.zeros(v + 1, 2, dtype=torch.float64)
    embedding[:v, 0], embedding[v, 1] = numbers, 1.0
    number, equals = torch.eye(2, dtype=torch.float64)
    readout = torch.zeros(2, v, dtype=torch.float64)
    readout[0] = 2 * numbers
    tensors = {
        "embed.W_E": embedding,
        "blocks.0.attn.W_Q": (beta * equals)[None, :, None],
        "blocks.0.attn.W_K": number[None, :, None].clone(),
        "blocks.0.attn.W_V": number[None, :, None].clone(),
        "blocks.0.attn.W_O": number[None, None].clone(),
        "unembed.W_U": readout,
        "unembed.b_U": -(numbers**2),
    }
    weights = ConstructedWeights(
        tensors,
        directions={"number": number, "=": equals},
        claim=f"right on all {task.n_inputs:,} sequences of {K} numbers below {v}",
        margin=math.tanh((beta - math.log(K)) / 2),
        notes=("the margin is attained at one 1 among zeros",),
        numbers={"beta": beta, "largest_shortfall": K * math.exp(-beta) / (1 + K * math.exp(-beta))},
    )
    return Construct.of(
        "algorithmic/max-of-k-exact", task, weights, {"K": K, "v": v, "beta": beta},
        d_model=2, layers=(Layer(n_heads=1, d_head=1, scale=1.0),), readout_at="=",
    )  # fmt: skip
