"""Addition, digit by digit, in four dimensions: two sharp averages, and two neurons for the overflow of a digit.

Notation. Numbers have n digits in base B, the answer is generated least digit first. Digit i of the sum is

    s_i = u_i mod B,    u_i = a_i + b_i + c_i,    i = 0, ..., n,    a_n = b_n = 0,

and c_i is the carry into it. It is read at the token before it: "=" for i = 0, else s_(i-1).

The carry. When s_(i-1) has been generated, the carry out of place i - 1 is plain: with t = a_(i-1) + b_(i-1) - s_(i-1)

    t = B c_i - c_(i-1),    so    (t + 1/2) / B = c_i + (1/2 - c_(i-1)) / B,

which is c_i up to 1 / (2 B). No chain of carries has to be followed. For i = 0 the same holds with t = 0.

The stream has the dimensions value, asked, place, square. A digit has its value, all other tokens have 0. The position
that digit i is read at has asked = i. The positions of a_j and b_j have place = j, "=" has place = n, "+" has -1, all
others (the answer's digits, a leading token) have F = 2 n + 3, and square = place^2.

Attention. Head 0 asks for the place p = asked, head 1 for p = asked - 1. The score of a key at place k is
beta (2 p k - k^2), that is -beta (k - p)^2 up to what all keys share. So a key at the place asked for has weight 1, one
at distance d the weight e^(-beta d^2). At a place of digits two keys have weight 1; at -1 and n, one has, and the
others lie on one side of it. No place but F holds more than two keys, and F is at least n + 3 away. So what is not at
the place asked for has at most the share

    T = 2 sum_(d = 1)^(n + 1) e^(-beta d^2) + (n + 2) e^(-beta (n + 3)^2)

of the pattern, and the mean value that the heads give is that of the two digits (of "+" or "=": 0) up to (B - 1) T.
Head 0 adds twice its mean and head 1 adds 2 / B times its own to a sum, from which the skip connection takes
s_(i-1) / B, so that with 1 / (2 B) added

    y = a_i + b_i + (t + 1/2) / B + error,    |y - u_i| <= 1 / (2 B) + e =: r,    e = 2 (B - 1) (1 + 1/B) T.

(The sum stands in the dimension value, times -B.)

Overflow. u_i is an integer below 2 B. The two neurons give step(y) = 4 relu(y - B + 5/8) - 4 relu(y - B + 3/8), which
is 0 for y <= B - 5/8 and 1 for y >= B - 3/8. If r <= 3/8, y is in the first range for u_i <= B - 1 and in the second
for u_i >= B, so y - B step(y) is s_i up to r.

Readout. Logit j is 2 (y - B step(y)) j - j^2, that is -(y - B step(y) - j)^2 up to what all logits share. Logit s_i
leads every other by at least 1 - 2 r. So the model is right on every pair if e <= 3/8 - 1 / (2 B), **with the margin
1 - 1/B - 2 e**, of which 1 - 1/B is attained up to 2 e.
"""

from __future__ import annotations

import math

import torch

from interp.constructions.base import ConstructedWeights
from interp.constructions.registry import Construct, register_construction
from interp.errors import InterpError
from interp.spec import MLP, Bias, Construction, Layer, ModelSpec, Scalar
from interp.tasks import Addition


@register_construction("algorithmic/addition-exact")
def addition(
    base: int = 10,
    digits: int = 10,
    beta: float = 16.0,
    order: str = "least",
    lead: str = "",
    plus: str = "+",
    equals: str = "=",
) -> Construct:
    """The sum of two numbers, least digit first, by one layer of two heads and two neurons; margin 1 - 1/base - 2 e.

    beta: how sharply a head looks at one place. order, lead, plus, equals: the format, as in task addition.
    Raises InterpError if beta is too small for the proof, and where "+" or "=" is left out or a digit but "0".
    """
    task = Addition(base=base, digits=digits, order=order, lead=lead, plus=plus, equals=equals)
    for name, mark in (("plus", plus), ("equals", equals)):
        if mark == "" or task.vocabulary.index(mark) in range(1, base):
            raise InterpError(
                f"{name} = {mark!r}: the construction needs a token there that is not a digit, or the digit '0'"
            )
    beta = float(beta)
    error = 2 * (base - 1) * (1 + 1 / base) * _elsewhere(digits, beta) if beta > 0 else math.inf
    if not error <= 3 / 8 - 1 / (2 * base):
        raise InterpError(f"beta = {beta} is too small for base {base}: the averages would be off by {error:.3g}")
    zeros, value, asked, place, square = torch.zeros(4, dtype=torch.float64), *torch.eye(4, dtype=torch.float64)

    embedding = torch.zeros(task.d_vocab, 4, dtype=torch.float64)
    embedding[:base, 0] = torch.arange(base)
    places = torch.full((task.length,), 2.0 * digits + 3, dtype=torch.float64)
    for at in (0, 1):
        places[task.digit_places[at, :-1]] = torch.arange(digits, dtype=torch.float64)
    plus_at, equals_at = sorted(task.fixed)[-2:]
    places[plus_at], places[equals_at] = -1.0, float(digits)
    positions = torch.stack([torch.zeros_like(places), torch.zeros_like(places), places, places**2], 1)
    positions[task.read_places, 1] = torch.arange(digits + 1, dtype=torch.float64)

    sharp = 2 * beta
    queries = torch.stack([sharp * asked, zeros], 1).expand(2, -1, -1).clone()
    asked_for = torch.tensor([[0.0, -beta], [-sharp, -beta]], dtype=torch.float64)  # place p, and p - 1
    keys = torch.stack([place, square], 1).expand(2, -1, -1).clone()
    values = torch.stack([value, zeros], 1).expand(2, -1, -1).clone()
    # The sum y stands in the dimension value, times -base: there the skip connection has the digit read.
    written = torch.stack([torch.stack([weight * value, zeros]) for weight in (-2.0 * base, -2.0)])
    to_sum, shift = -value / base, 1 / (2 * base)
    numbers = torch.arange(base, dtype=torch.float64)
    tensors = {
        "embed.W_E": embedding,
        "pos_embed.W_pos": positions,
        "blocks.0.attn.W_Q": queries,
        "blocks.0.attn.b_Q": asked_for,
        "blocks.0.attn.W_K": keys,
        "blocks.0.attn.W_V": values,
        "blocks.0.attn.W_O": written,
        "blocks.0.mlp.W_in": torch.stack([to_sum, to_sum], 1),
        "blocks.0.mlp.b_in": torch.tensor([shift - base + 5 / 8, shift - base + 3 / 8], dtype=torch.float64),
        "blocks.0.mlp.W_out": torch.stack([4 * base**2 * value, -4 * base**2 * value]),
        "blocks.0.mlp.b_out": zeros.clone(),
        "unembed.W_U": 2 * torch.outer(to_sum, numbers),
        "unembed.b_U": 2 * shift * numbers - numbers**2,
    }
    arguments: dict[str, Scalar] = {
        "base": base, "digits": digits, "beta": beta, "order": order, "lead": lead, "plus": plus, "equals": equals,
    }  # fmt: skip
    spec = ModelSpec(
        task=task.ref,
        d_model=4,
        layers=(Layer(n_heads=2, d_head=2, scale=1.0, bias=Bias(q=True), mlp=MLP(d_mlp=2)),),
        positions="learned",
        max_length=task.length,
        dtype="float64",
        origin=Construction(name="algorithmic/addition-exact", arguments=tuple(arguments.items())),
    )
    weights = ConstructedWeights(
        tensors,
        directions={"value": value, "asked": asked, "place": place, "square": square},
        claim=f"right on all {task.n_inputs:,} pairs of numbers of {digits} digits in base {base}",
        margin=1 - 1 / base - 2 * error,
        notes=("the margin is attained, up to the error of the averages, wherever a carry comes in",),
        numbers={"beta": beta, "error_of_the_sum": error},
    )
    return Construct(spec, task, weights)


def _elsewhere(n: int, beta: float) -> float:
    """T: the largest share of a head's attention that is not at the place asked for."""
    near = sum(math.exp(-beta * d * d) for d in range(1, n + 2))
    return 2 * near + (n + 2) * math.exp(-beta * (n + 3) ** 2)
