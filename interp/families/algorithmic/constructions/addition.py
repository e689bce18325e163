"""Digit-by-digit addition in four dimensions: two sharp averages, and two neurons for a digit's overflow.

Notation. Numbers have n digits in base B, and the answer is generated least digit first. Digit i of the sum is

    s_i = u_i mod B,    u_i = a_i + b_i + c_i,    i = 0, ..., n,    a_n = b_n = 0,

and c_i is the carry into it. Digit i is read at the token before it: "=" for i = 0, else s_(i-1).

The carry. Once s_(i-1) has been generated, it determines the carry: with t = a_(i-1) + b_(i-1) - s_(i-1),

    t = B c_i - c_(i-1),    so    (t + 1/2) / B = c_i + (1/2 - c_(i-1)) / B,

which is c_i up to 1 / (2 B). So no chain of carries has to be followed. For i = 0 the same is true with t = 0.

The residual stream has the dimensions value, asked, place and square. The value of a digit is the digit; of any other
token, 0. The read position of digit i has asked = i. The positions of a_j and b_j have place = j, "=" has place = n,
"+" has -1, and all others (the answer's digits, a leading token) have F = 2 n + 3. Always square = place^2.

Attention. The target place of head 0 is p = asked, that of head 1 is p = asked - 1. The score of a key at place k is
beta (2 p k - k^2), which is -beta (k - p)^2 plus a constant. So, up to a common factor, a key at the target place has
weight 1, and one at distance d has weight e^(-beta d^2). The target place has two keys if it is a place of digits. If
it is -1 or n, it has one key, and all others, except those at F, are on one side of it. Only F has more than two keys,
and it is at least n + 3 away. So the keys that are not at the target place have at most the share

    T = 2 sum_(d = 1)^(n + 1) e^(-beta d^2) + (n + 2) e^(-beta (n + 3)^2)

of the attention. Each head's mean value equals that of the two digits (0 for "+" or "=") up to (B - 1) T. The neurons
read a sum: twice the mean of head 0, plus 2 / B times the mean of head 1, minus s_(i-1) / B from the skip connection.
With 1 / (2 B) added, the sum is

    y = a_i + b_i + (t + 1/2) / B + error,    |y - u_i| <= 1 / (2 B) + e =: r,    e = 2 (B - 1) (1 + 1/B) T.

(The sum is in the dimension value, times -B.)

Overflow. u_i is an integer below 2 B. The two neurons give step(y) = 4 relu(y - B + 5/8) - 4 relu(y - B + 3/8), which
is 0 for y <= B - 5/8 and 1 for y >= B - 3/8. If r <= 3/8, y is in the first range for u_i <= B - 1 and in the second
for u_i >= B, so y - B step(y) is s_i up to r.

Readout. Logit j is 2 (y - B step(y)) j - j^2, which is -(y - B step(y) - j)^2 plus a constant. Logit s_i leads every
other one by at least 1 - 2 r. So the model is right on every pair if e <= 3/8 - 1 / (2 B), **with a margin of at least
1 - 1/B - 2 e**. Some pairs have the margin 1 - 1/B up to 2 e.
"""

import math

import torch

from interp.errors import InterpError
from interp.families.algorithmic.tasks.addition import Addition
from interp.models.constructions import Construct, ConstructedWeights, register_construction
from interp.models.spec import MLP, Bias, Layer, Scalar


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

    beta: sharpness of the heads' attention to one place. order, lead, plus, equals: the format, as in task addition.
    Raises InterpError if beta is too small for the proof, and if "+" or "=" is missing or a digit other than "0".
    """
    task = Addition(base=base, digits=digits, order=order, lead=lead, plus=plus, equals=equals)
    for name, mark in (("plus", plus), ("equals", equals)):
        if mark not in task.vocabulary or task.vocabulary.index(mark) in range(1, base):
            raise InterpError(
                f"{name} = {mark!r}: the construction needs one token there that is not a digit, or the digit '0'"
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
    asked_for = torch.tensor([[0.0, -beta], [-sharp, -beta]], dtype=torch.float64)  # target places p and p - 1
    keys = torch.stack([place, square], 1).expand(2, -1, -1).clone()
    values = torch.stack([value, zeros], 1).expand(2, -1, -1).clone()
    # The sum y is in the dimension value, times -base, because the skip connection has the current digit there.
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
    weights = ConstructedWeights(
        tensors,
        directions={"value": value, "asked": asked, "place": place, "square": square},
        claim=f"right on all {task.n_inputs:,} pairs of numbers of {digits} digits in base {base}",
        margin=1 - 1 / base - 2 * error,
        notes=("whenever there is a carry, the margin is attained up to the error of the averages",),
        numbers={"beta": beta, "error_of_the_sum": error},
    )
    return Construct.of(
        "algorithmic/addition-exact", task, weights, arguments,
        d_model=4, layers=(Layer(n_heads=2, d_head=2, scale=1.0, bias=Bias(q=True), mlp=MLP(d_mlp=2)),),
        positions="learned", max_length=task.length,
    )  # fmt: skip


def _elsewhere(n: int, beta: float) -> float:
    """Return T, the largest share of a head's attention outside its target place."""
    near = sum(math.exp(-beta * d * d) for d in range(1, n + 2))
    return 2 * near + (n + 2) * math.exp(-beta * (n + 3) ** 2)
