"""An induction circuit: a previous-token head, and a head that attends to what followed the current token before.

The residual directions are orthonormal: one per token, one per position, one per "token before" and one per answer. A
row is [BOS] and a string of different tokens, repeated.

**Layer 0, head 0** (previous token): the score of position j at position i is beta if j = i - 1, else 0. So position
i >= 1 has the weight e^beta / (e^beta + i) on the token before it, and 1 / (e^beta + i) on every other token up to and
including itself. [BOS] has the weight 1 on itself. The head writes the tokens that it attends to as "token before".

**Layer 1, the last head** (induction): let x be the token at position q. The score of position j is gamma times its
component "token before = x". Let L be the length with [BOS], and suppose that x occurs r + 1 times up to q (r >= 1 if
there is an answer). The r positions after the earlier occurrences have a score of at least gamma A, where A = e^beta /
(e^beta + L - 1), and all of them contain the right answer y. Every other position i has the weight 1 / (e^beta + i) on
each x that it attends to, so its score is at most gamma B, where B = (r + 1) / (e^beta + 1). Any other token z occurs
at most r + 1 times at these positions, because the string contains it only once. The head copies the attended tokens
to the answers, times `gain`, so

    **logit y - logit z >= gain (r e^(gamma A) - (r + 1) e^(gamma B)) / (r e^(gamma A) + (L - r) e^(gamma B)),**

which is positive if gamma (A - B) > ln((r + 1) / r). The margin is the smallest of these bounds over all possible r.

The other heads are zero, so that a search for the circuit has heads to leave out.
"""

import math

import torch

from interp.errors import InterpError, check_size
from interp.families.algorithmic.tasks.induction import Induction
from interp.models.constructions import Construct, ConstructedWeights, register_construction
from interp.models.spec import Layer


def margin(task: Induction, beta: float, gamma: float, gain: float) -> float:
    """Return the smallest of the bounds above over all possible numbers of earlier occurrences."""
    length, worst = task.length + 1, math.inf
    for r in range(1, task.length // task.shortest + 1):
        a = math.exp(beta) / (math.exp(beta) + length - 1)
        b = (r + 1) / (math.exp(beta) + 1)
        lead = math.exp(gamma * (b - a))  # all weights divided by e^(gamma A)
        worst = min(worst, gain * (r - (r + 1) * lead) / (r + (length - r) * lead))
    return worst


@register_construction("algorithmic/induction-exact")
def induction(
    v: int = 8, length: int = 16, shortest: int = 3, longest: int = 5, n_heads: int = 2, beta: float = 10.0,
    gamma: float = 12.0, gain: float = 1.0,
) -> Construct:  # fmt: skip
    """A previous-token head and an induction head in one-hot directions: right wherever the answer is determined.

    v, length, shortest, longest: the task's parameters. n_heads: heads per layer; only head 0 of layer 0 and the last
    head of layer 1 are not zero. beta, gamma: factors of the scores of these two. gain: factor from attention to
    logits. Raises InterpError if the proof leaves no margin.
    """  # fmt: skip
    task = Induction(v=v, length=length, shortest=shortest, longest=longest)
    check_size("n_heads", n_heads)
    lead = margin(task, beta, gamma, gain)
    if not lead > 0 or not math.isfinite(math.exp(min(beta, gamma, 700.0))):
        raise InterpError(
            f"beta = {beta}, gamma = {gamma}: the proof leaves no margin (its bound is {lead:.3g}); make both larger"
        )
    n, tokens = length + 1, v + 1
    sizes = {"token": tokens, "position": n, "token before": tokens, "answer": v}
    d = sum(sizes.values())
    d_head = max(n, tokens)
    directions = dict(zip(sizes, torch.eye(d, dtype=torch.float64).split(list(sizes.values()))))
    token, position, before, answer = directions.values()
    tensors = {"embed.W_E": token.clone(), "pos_embed.W_pos": position.clone()}
    for index in range(2):
        for name, shape in (("Q", (d, d_head)), ("K", (d, d_head)), ("V", (d, d_head)), ("O", (d_head, d))):
            tensors[f"blocks.{index}.attn.W_{name}"] = torch.zeros(n_heads, *shape, dtype=torch.float64)
    first = {name: tensors[f"blocks.0.attn.W_{name}"][0] for name in "QKVO"}
    first["Q"][:, : n - 1] = beta * position[1:].T  # position i attends to i - 1
    first["K"][:, :n] = position.T
    first["V"][:, :tokens], first["O"][:tokens] = token.T, before
    second = {name: tensors[f"blocks.1.attn.W_{name}"][-1] for name in "QKVO"}
    second["Q"][:, :tokens], second["K"][:, :tokens] = gamma * token.T, before.T
    second["V"][:, :v], second["O"][:v] = token[:v].T, gain * answer
    tensors["unembed.W_U"] = answer.T.contiguous()
    arguments = {"v": v, "length": length, "shortest": shortest, "longest": longest, "n_heads": n_heads,
                 "beta": float(beta), "gamma": float(gamma), "gain": float(gain)}  # fmt: skip
    weights = ConstructedWeights(
        tensors,
        directions=directions,
        claim=f"right wherever the answer is determined, in every row of [BOS] and {length} tokens that repeats a "
        f"string of {shortest} to {longest} different tokens",
        margin=lead,
        notes=("the margin is a lower bound", f"heads 0.0 and 1.{n_heads - 1} work, the others are zero"),
        numbers={"beta": float(beta), "gamma": float(gamma), "gain": float(gain)},
    )
    return Construct.of(
        "algorithmic/induction-exact", task, weights, arguments,
        d_model=d, layers=(Layer(n_heads=n_heads, d_head=d_head, scale=1.0),) * 2,
        positions="learned", max_length=n, readout_bias=False,
    )  # fmt: skip
