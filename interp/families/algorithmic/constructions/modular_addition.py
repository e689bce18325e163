"""Addition mod p by Fourier features: attention averages the numbers, and 2 p neurons per frequency add their angles.

For each frequency k, with w = 2 pi k / p, the embedding of t is (cos wt, sin wt), and that of '=' is zero. All scores
are zero, so '=' averages all three tokens, and W_O turns the factor 1/3 into 1/2. With s = a + b and
r = cos(w (a - b) / 2), the result is

    C = (cos wa + cos wb) / 2 = r cos(ws / 2),      S = (sin wa + sin wb) / 2 = r sin(ws / 2).

For j = 0..p-1, two neurons with opposite inputs compute |C cos(pi j / p) + S sin(pi j / p)| = |r| H(ks - j), where
H(n) = |cos(pi n / p)| depends only on n mod p. H is even, so the discrete convolution

    sum_j H(ks - j) (cos, sin)(2 pi j / p) = h (cos, sin)(ws),      h = sum_n H(n) cos(2 pi n / p) > 0,

has no error. So the MLP can write |r| (cos ws, sin ws), from which the readout computes

    **logit c = sum_k |cos(pi k (a - b) / p)| cos(2 pi k (a + b - c) / p).**

Each term is largest at c = a + b. For odd p no amplitude is 0. If also some k is prime to p, no other c reaches the
maximum, so the model is right on all p^2 pairs. The margin is the smallest value of
sum_k |cos(pi k d / p)| (1 - cos(2 pi k e / p)) over all d and over e = 1..p-1; all of these values are computed.

(Zhong et al. 2023 call this algorithm "pizza": the amplitude depends on a - b. Nanda et al. 2023 find the algorithm
"clock", which multiplies; ReLU neurons after uniform attention cannot do that.)
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError
from interp.families.algorithmic.tasks.modular_addition import ModularAddition
from interp.models.constructions import Construct, ConstructedWeights, register_construction
from interp.models.spec import MLP, Layer


def margin(p: int, frequencies: tuple[int, ...]) -> float:
    """Return the smallest lead of the right logit over all pairs and all wrong answers."""
    k = torch.tensor(frequencies, dtype=torch.float64)
    n = torch.arange(p, dtype=torch.float64)
    amplitude = (math.pi / p * k * n[:, None]).cos().abs()
    lead = 1 - (2 * math.pi / p * k * n[1:, None]).cos()
    return float((amplitude @ lead.T).min())


@register_construction("algorithmic/modular-addition-fourier")
def modular_addition(p: int = 113, frequencies: str = "14 35 41 42 52") -> Construct:
    """Addition mod p by Fourier features of a few frequencies, each with 2 p neurons; right on all p^2 pairs.

    frequencies: different whole numbers from 1 to (p - 1) / 2 (default: those that Nanda et al. 2023 found in their
    main model). Raises InterpError if p is even or no frequency is prime to p.
    """
    task = ModularAddition(p=p)
    ks = _checked(p, frequencies)
    n_freq, n = len(ks), torch.arange(p, dtype=torch.float64)
    in_cos, in_sin, out_cos, out_sin = torch.eye(4 * n_freq, dtype=torch.float64).view(4, n_freq, -1)
    embedding = torch.zeros(p + 1, 4 * n_freq, dtype=torch.float64)
    readout = torch.zeros(4 * n_freq, p, dtype=torch.float64)
    w_in, w_out = (torch.zeros(n_freq, 2 * p, 4 * n_freq, dtype=torch.float64) for _ in range(2))
    phase, wave = math.pi / p * n, 2 * math.pi / p * n
    h = float((phase.cos().abs() * wave.cos()).sum())
    for i, k in enumerate(ks):
        embedding[:p] += torch.outer((k * wave).cos(), in_cos[i]) + torch.outer((k * wave).sin(), in_sin[i])
        reads = torch.outer(phase.cos(), in_cos[i]) + torch.outer(phase.sin(), in_sin[i])
        w_in[i] = torch.cat([reads, -reads])
        w_out[i] = ((torch.outer(wave.cos(), out_cos[i]) + torch.outer(wave.sin(), out_sin[i])) / h).repeat(2, 1)
        readout += torch.outer(out_cos[i], (k * wave).cos()) + torch.outer(out_sin[i], (k * wave).sin())
    inner = torch.cat([in_cos, in_sin])
    zero = torch.zeros(1, 4 * n_freq, 2 * n_freq, dtype=torch.float64)
    tensors = {
        "embed.W_E": embedding,
        "blocks.0.attn.W_Q": zero,
        "blocks.0.attn.W_K": zero.clone(),
        "blocks.0.attn.W_V": inner.T[None].clone(),
        "blocks.0.attn.W_O": 1.5 * inner[None],
        "blocks.0.mlp.W_in": w_in.flatten(0, 1).T.contiguous(),
        "blocks.0.mlp.b_in": torch.zeros(2 * p * n_freq, dtype=torch.float64),
        "blocks.0.mlp.W_out": w_out.flatten(0, 1),
        "blocks.0.mlp.b_out": torch.zeros(4 * n_freq, dtype=torch.float64),
        "unembed.W_U": readout,
    }
    weights = ConstructedWeights(
        tensors,
        directions=_directions_by_name(ks, in_cos, in_sin, out_cos, out_sin),
        claim=f"right on all {p * p:,} pairs: logit c is the sum over the frequencies k of "
        "|cos(pi k (a - b) / p)| cos(2 pi k (a + b - c) / p)",
        margin=margin(p, ks),
        notes=("the algorithm that Zhong et al. 2023 call pizza",),
        numbers={"h": h, "frequencies": float(n_freq)},
    )
    return Construct.of(
        "algorithmic/modular-addition-fourier", task, weights, {"p": p, "frequencies": " ".join(map(str, ks))},
        d_model=4 * n_freq, layers=(Layer(n_heads=1, d_head=2 * n_freq, mlp=MLP(d_mlp=2 * p * n_freq)),),
        readout_at="=", readout_bias=False,
    )  # fmt: skip


def _checked(p: int, frequencies: str) -> tuple[int, ...]:
    try:
        ks = tuple(int(word) for word in str(frequencies).replace(",", " ").split())
    except ValueError:
        ks = ()
    if p % 2 == 0:
        raise InterpError(f"p = {p} is even: at a - b = p / 2 every odd frequency has amplitude 0; take an odd p")
    if not ks or len(set(ks)) < len(ks) or not all(1 <= k <= (p - 1) // 2 for k in ks):
        raise InterpError(
            f"frequencies = {frequencies!r} must be different whole numbers from 1 to {(p - 1) // 2}, such as '1 3'"
        )
    if all(math.gcd(k, p) > 1 for k in ks):
        raise InterpError(f"frequencies = {frequencies!r}: none is prime to p = {p}, so some answers look the same")
    return ks


def _directions_by_name(
    ks: tuple[int, ...], in_cos: Tensor, in_sin: Tensor, out_cos: Tensor, out_sin: Tensor
) -> dict[str, Float[Tensor, "frequencies d_model"]]:
    return {"cos of a token": in_cos, "sin of a token": in_sin, "cos of the sum": out_cos, "sin of the sum": out_sin}
