"""A one-layer model as tables: the scores and values of each token at each position, as the read position sees them.

Any number of heads, grouped keys and values, all kinds of positions, norms before or after attention, plain and gated
MLPs are supported. Models with other features are refused.
certificates/probes.py compares the bounds with the model itself on random inputs.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.certificates.arithmetic import Arithmetic, Tracked, exact, format_refusal
from interp.certificates.probes import hooks_on
from interp.certificates.rounding import before_attention, normed, projected, score_factor
from interp.models.architecture.answers import Decision
from interp.models.architecture.task_model import TaskModel


@dataclass(frozen=True)
class OneLayer:
    """A one-layer model and what it adds for inputs of one length, in float64, which rounds no weight.

    places: position embeddings. rotation: the rotary matrix of each position, applied to queries and keys. added:
    ALiBi's bias on the scores, per query and key position. factor: the scale of the scores. write, read: of the heads'
    outputs to the stream, and of the stream to the outputs.
    """

    model: TaskModel
    places: Float[Tensor, "length d_model"]
    rotation: Float[Tensor, "length d_head d_head"] | None
    added: Float[Tensor, "heads length length"] | None
    factor: float
    write: Float[Tensor, "heads d_head d_model"]
    b_write: Float[Tensor, "d_model"]
    read: Float[Tensor, "d_model n_out"]
    b_read: Float[Tensor, "n_out"]

    @property
    def n_heads(self) -> int:
        return self.write.shape[0]

    @property
    def causal(self) -> bool:
        return bool(self.model.cfg.attention_dir == "causal")

    @property
    def dtype(self) -> torch.dtype:
        return self.model.embed.W_E.dtype

    @property
    def decision(self) -> Decision:
        """How the outputs decide: a single one by its sign."""
        return Decision("argmax" if self.read.shape[1] > 1 else "sigmoid")

    def rows(self, numbers: Arithmetic, seen: int) -> Tracked:
        """Return the stream of each token at each of the first `seen` positions: (places, tokens, d_model)."""
        tokens = self.model.embed.W_E.detach().double()
        places = self.places[:seen, None].expand(-1, len(tokens), -1)
        return numbers.add(exact(tokens.expand(seen, -1, -1)), exact(places))


def refusal(model: TaskModel) -> str | None:
    """The reason why a model with the fields that places.py takes cannot be converted to tables, or None."""
    if (reason := hooks_on(model) or format_refusal(model)) is not None:
        return reason
    if model.spec.positions_enter == "attention" and model.spec.positions == "learned":
        return "its learned position embeddings are added only inside attention"
    return None


@torch.no_grad()
def one_layer(model: TaskModel, length: int) -> OneLayer:
    """Describe a model that is not refused, for inputs of this length."""
    parts: Any = model
    attn, layer = parts.blocks[0].attn, model.spec.layers[0]
    places = torch.zeros(length, model.cfg.d_model, dtype=torch.float64)
    if hasattr(parts, "pos_embed"):
        embedded = parts.pos_embed(torch.zeros(1, length, dtype=torch.long))[0].double()
        places = embedded if embedded.ndim == 2 else places
    return OneLayer(
        model,
        places=places.expand(length, -1),
        rotation=_rotation(attn, length),
        added=_added(attn, length),
        factor=score_factor(layer, model.spec.d_model, length),
        write=attn.W_O.detach().double(),
        b_write=attn.b_O.detach().double(),
        read=parts.unembed.W_U.detach().double(),
        b_read=parts.unembed.b_U.detach().double(),
    )


def _rotation(attn: Any, length: int) -> Tensor | None:
    """Return the rotary matrices: unit vectors rotated by the model's own code, for the same rounding of sines."""
    if not getattr(attn, "rotary_dim", 0):
        return None
    d_head = attn.W_Q.shape[-1]
    units = torch.eye(d_head, dtype=attn.W_Q.dtype)[:, None, None].expand(-1, length, attn.W_Q.shape[0], -1)
    return attn._rotated(units, torch.arange(length))[:, :, 0].double().transpose(0, 1)


def _added(attn: Any, length: int) -> Tensor | None:
    """ALiBi's bias on the scores, rounded as in the model."""
    if not getattr(attn, "sloped", False):
        return None
    places = attn.W_Q.new_zeros(1, length, attn.W_Q.shape[0], 1)
    return attn._slopes(places, places).double()


@dataclass(frozen=True)
class PositionTables:
    """Scores and values that one query position sees, with their rounding errors.

    stream: (query token, d_model), the residual stream at that position as it enters the layer. scores: (head, query
    token, key position, key token). values: (head, key position, key token, d_head).
    """

    stream: Tracked
    scores: Tracked
    values: Tracked


@torch.no_grad()
def token_tables(net: OneLayer, u: float, at: int, seen: int) -> PositionTables:
    """Compute the tables for a query at position `at` and keys at the first `seen` positions. u: the unit roundoff."""
    numbers = Arithmetic(u)
    rows = net.rows(numbers, seen)
    inner = before_attention(numbers, net.model, 0, rows)
    q, k = _turned(net, numbers, "Q", inner[at : at + 1], at), _turned(net, numbers, "K", inner, 0)
    more = 5 if net.model.spec.layers[0].log_length == "none" else 8
    scores = numbers.scores(q, k, net.factor, more)  # (places, heads, query tokens, tokens)
    value, slip = scores.value.movedim(0, 2), scores.error.movedim(0, 2)
    if net.added is not None:
        shift = net.added[:, at, :seen][:, None, :, None]
        value = value + shift
        slip = slip + 2 * numbers.u * (value.abs() + shift.abs() + slip)
    v = projected(numbers, net.model, 0, "V", inner)
    return PositionTables(rows[at], Tracked(value, slip), Tracked(v.value.movedim(0, 1), v.error.movedim(0, 1)))


def _turned(net: OneLayer, numbers: Arithmetic, name: str, x: Tracked, start: int) -> Tracked:
    """Return queries or keys at positions from `start` on, with query-key norms and rotations: (places, heads, ...)."""
    vectors = projected(numbers, net.model, 0, name, x)
    norm = getattr(net.model.blocks[0].attn, f"{name.lower()}_norm", None)
    vectors = vectors if norm is None else normed(numbers, norm, vectors)
    turn = net.rotation
    return vectors if turn is None else numbers.linear(vectors, turn[start : start + len(x.value), None])
