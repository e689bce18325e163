"""QK and OV circuits of every head in token space, their singular values, and how heads of two layers compose.

Elhage et al. 2021: W_QK = W_Q W_K^T determines where a head attends, W_OV = W_V W_O what it writes. In token space
these are W_E W_QK W_E^T and W_E W_OV W_U. The gains of the norms before attention and readout are folded in. Norm
scales (positive and different per input), biases and positions are left out. So the circuits are exact for one
layer without norms and positions; otherwise they are the direct token-to-token part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, first_few, one_of, refuse_if
from interp.measures.components import readout_map
from interp.measures.embeddings import token_vectors
from interp.measures.results import Figure, Tabular, draw, tidy
from interp.measures.runs import Part, heads_of, mlps_of
from interp.models.architecture.reduced import TokenTables
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Model, Subject, check_finite, no_sum, post_norm


def no_circuits(subject: Subject) -> str | None:
    """Return the reason why heads have no QK and OV circuits, or None."""
    if isinstance(subject.model, TaskModel) and any(layer.mixing == "linear" for layer in subject.model.spec.layers):
        return "linear mixing has no queries and keys"
    return None


def factors(subject: Subject, part: Part) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return W_Q, W_K, W_V and W_O in float64, with the norm's gain and centering folded into the first three."""
    block, head = subject.model.blocks[part.layer], part.head or 0
    weights = [getattr(block.attn, f"W_{name}")[head].detach().double().cpu() for name in "QKVO"]
    norm = getattr(block, "ln1", None)
    if norm is not None and not isinstance(norm, torch.nn.Identity) and not post_norm(subject.model):
        gain = getattr(norm, "w", None)
        for i, weight in enumerate(weights[:3]):
            weight = weight if gain is None else gain.detach().double().cpu()[:, None] * weight
            weights[i] = weight if "RMS" in type(norm).__name__ else weight - weight.mean(0)
    return weights[0], weights[1], weights[2], weights[3]


def no_table(subject: Subject, which: str) -> str | None:
    """Return the reason why a circuit (QK or OV) is not a table over tokens, or None."""
    cfg = subject.model.cfg
    if getattr(cfg, "post_embedding_ln", False):
        return "a norm follows the embedding, so what heads read is not a linear map of it"
    if getattr(cfg, "clip_qkv", None) is not None:
        return "queries, keys and values are clipped, so they are not linear maps of what heads read"
    if which == "OV":
        return no_sum(subject.model)
    if getattr(cfg, "use_qk_norm", False) or (post_norm(subject.model) and not isinstance(subject.model, TaskModel)):
        return "queries and keys are normalized, so scores are not a bilinear function of two tokens"
    return None


def token_circuits(model: Model, which: str = "QK", max_tokens: int = 64) -> pd.DataFrame:
    """Return the QK or OV circuit of every head as a table over tokens.

    QK: columns layer, head, query, key, value, the score of a query token for a key token with the model's scale,
    before any soft cap. OV: columns layer, head, source, answer, value, the contribution to an output if the head
    attends to the source token. Raises UnsupportedError for too many tokens, linear mixing, and if `no_table` gives a
    reason.
    """
    subject = Subject.of(model)
    check_finite(subject)
    refuse_if(no_circuits(subject) or no_table(subject, which))
    embedding = token_vectors(subject)
    if len(embedding) > max_tokens:
        raise UnsupportedError(f"a table of {len(embedding)} x {len(embedding)} tokens per head is too large to show")
    words, columns = list(subject.task.vocabulary), ("query", "key")
    others, out = words, embedding.T
    if which == "OV":
        out, _ = readout_map(subject)
        columns = ("source", "answer")
        others = list(subject.task.answer_words) if len(subject.task.answer_words) == out.shape[1] else None  # type: ignore[assignment]
        others = others or [f"output {i}" for i in range(out.shape[1])]
    frames = []
    for part in heads_of(subject):
        q, k, v, o = factors(subject, part)
        scale = float(getattr(subject.model.blocks[part.layer].attn, "attn_scale", 1.0))
        table = (embedding @ q) @ (embedding @ k).T / scale if which == "QK" else (embedding @ v) @ o @ out
        labels: dict[str, Sequence[Any]] = {
            "layer": [part.layer],
            "head": [part.head],
            columns[0]: words,
            columns[1]: others,
        }
        frames.append(tidy(table, "value", **labels))
    return pd.concat(frames, ignore_index=True)


def number_circuits(model: Model) -> pd.DataFrame:
    """Measure how heads attend to numbers from the read position, and whether they copy them (Gross et al. 2024).

    Columns layer, head; grows: share of the steps from one number to the next at which the score increases; range: the
    last number's score minus the first's; copied: share of the numbers that get the largest output when the head
    attends only to them, including the readout's bias (NaN if outputs are not a sum over parts, or numbers are not
    answers). Positions and attention biases are left out, as in token_circuits. Raises UnsupportedError if the task has
    no numbers or is not read at one token.
    """
    subject = Subject.of(model)
    words = [word for word in subject.task.vocabulary if word.isdecimal()]
    ordered = len(words) >= 8 and words == sorted(words, key=int)
    if not ordered or subject.read_at not in subject.task.vocabulary:
        raise UnsupportedError(f"task {subject.task.name} has no eight numbers in order, or is not read at one token")
    scores = token_circuits(subject, "QK", subject.task.d_vocab).query("query == @subject.read_at")
    table = scores.pivot(index=["layer", "head"], columns="key", values="value")[words]
    heads = pd.DataFrame(
        {"grows": (table.diff(axis=1).iloc[:, 1:] > 0).mean(axis=1), "range": table[words[-1]] - table[words[0]]}
    )
    heads["copied"] = float("nan")
    if set(words) <= set(subject.task.answer_words) and no_table(subject, "OV") is None:
        copies = token_circuits(subject, "OV", subject.task.d_vocab)
        copies["value"] += copies["answer"].map(dict(zip(subject.task.answer_words, readout_map(subject)[1].tolist())))
        copies = copies.query("source in @words")
        best = copies.loc[copies.groupby(["layer", "head", "source"])["value"].idxmax()]
        heads["copied"] = (best["source"] == best["answer"]).groupby([best["layer"], best["head"]]).mean()
    return heads.reset_index()


@dataclass(frozen=True, eq=False, repr=False)
class SingularValues(Tabular):
    """Singular values; columns matrix, index, value (and layer, head, circuit for heads).

    vectors: for each matrix M its left and right singular vectors as columns, U (rows, rank) and V (columns, rank):
    M = U diag(values) V^T. Those of a head's OV are what it reads from the stream (U) and writes to it (V).
    """

    vectors: Mapping[str, tuple[Tensor, Tensor]]

    @property
    def title(self) -> str:
        return f"Singular values of {first_few(dict.fromkeys(self['matrix']), 6)}"

    def plot(self) -> Figure:
        """Draw the values of each matrix, the largest first."""
        table = self.table.assign(owner=self.table["matrix"].str.replace(r" (QK|OV)$", "", regex=True))
        return draw.lines(
            table, "index", "value", "matrix", x_title="index", y_title="singular value", markers=True, owner="owner"
        ).update_xaxes(dtick=max(1, round(float(table["index"].max()) / 8)))


def singular_values(model: Model, matrix: str | Sequence[str] | None = None) -> SingularValues:
    """Return singular values and vectors of weight matrices: every head's W_QK and W_OV (default), or those named.

    matrix: one or several of "head 0.3 QK", "head 0.3 OV" (or "0.3 OV"), "MLP 0 in", "MLP 0 out", "embedding" (W_E),
    "unembedding" (W_U), and, for a readout with neurons, "W1" (into the neurons) and "W2" (out of them; Behrens et al.
    2024). The result has .vectors: U and V of each matrix. "QK", "OV", "W_in" and "W_out" name those of all heads or
    MLPs; "W_E" and "W_U" are known, too. The gains of norms before attention, and their centering, are folded in, as in
    `factors`; those before MLPs are not. Raises InterpError for unknown names, and UnsupportedError for linear mixing.

    Example:

        >>> model = interp.load("histogram/dot")
        >>> len(interp.singular_values(model, "W1"))
        64
    """
    subject = Subject.of(model)
    check_finite(subject)
    known = _matrices(subject)
    names = [matrix] if isinstance(matrix, str) else matrix
    wanted = [name for name in known if name.startswith("head ")] if names is None else [*names]
    if names is None:
        refuse_if(no_circuits(subject))
    rows: list[tuple[Any, ...]] = []
    vectors: dict[str, tuple[Tensor, Tensor]] = {}
    for name in (name for asked in wanted for name in _named(asked, known)):
        words = name.split()
        layer, head = map(int, words[1].split(".")) if words[0] == "head" else (None, None)
        circuit = words[-1] if words[0] == "head" else None
        left, right = known[name]()
        if right is None:
            u, values, vh = torch.linalg.svd(left, full_matrices=False)
        else:  # the product of the factors' triangular parts has the same singular values and is small
            (q, r), (q_right, r_right) = torch.linalg.qr(left), torch.linalg.qr(right.T)
            u, values, vh = torch.linalg.svd(r @ r_right.T)
            u, vh = q @ u, vh @ q_right.T
        vectors[name] = u, vh.T
        rows += [(name, layer, head, circuit, index, value) for index, value in enumerate(values.tolist())]
    table = pd.DataFrame(rows, columns=["matrix", "layer", "head", "circuit", "index", "value"])
    return SingularValues(table.astype({"layer": "Int64", "head": "Int64"}), vectors)


def _named(asked: str, known: Mapping[str, object]) -> list[str]:
    """Return the matrices that a name is for: one, or those of all heads or MLPs. Raises InterpError for none."""
    every = {"QK": " QK", "OV": " OV", "W_in": " in", "W_out": " out", "W_E": "embedding", "W_U": "unembedding"}
    names = [name for name in (asked, f"head {asked}") if name in known]
    if asked in every:
        end = every[asked]
        names = [name for name in known if name == end or (end[0] == " " and name.endswith(end))]
        if not names:
            raise InterpError(f"this model has no {asked}: its matrices are {first_few(known, 8)}")
    if not names:
        raise InterpError(one_of("matrix", asked, [*known, *every]))
    return names


def _matrices(subject: Subject) -> dict[str, Callable[[], tuple[Tensor, Tensor | None]]]:
    """Return functions that make each named matrix: one tensor, or two factors."""
    model: Any = subject.model
    matrices: dict[str, Callable[[], tuple[Tensor, Tensor | None]]] = {}
    if no_circuits(subject) is None:
        for part in heads_of(subject):
            matrices[f"{part} QK"] = lambda part=part: (factors(subject, part)[0], factors(subject, part)[1].T)  # type: ignore[misc]
            matrices[f"{part} OV"] = lambda part=part: factors(subject, part)[2:]  # type: ignore[misc]
    whole = {"embedding": (model.embed, "W_E"), "unembedding": (model.unembed, "W_U")}
    for part in mlps_of(subject):
        mlp = model.blocks[part.layer].mlp
        whole |= {f"{part} in": (mlp, "W_in"), f"{part} out": (mlp, "W_out")}
    whole |= {"W1": (model.unembed, "W_in"), "W2": (model.unembed, "W_out")}
    for name, (module, weight) in whole.items():
        if isinstance(tensor := getattr(module, weight, None), Tensor) and tensor.ndim == 2:
            matrices[name] = lambda tensor=tensor: (tensor.detach().double().cpu(), None)  # type: ignore[misc]
    return matrices


@dataclass(frozen=True, eq=False, repr=False)
class CompositionScores(Tabular):
    """Composition scores; columns writer, reader, Q, K, V. random: about the score of two random matrices."""

    random: float

    @property
    def title(self) -> str:
        return f"Composition scores of heads in different layers (random matrices: about {self.random:.3f})"

    def plot(self) -> Figure:
        """Draw the scores: a row for each pair of heads, a column for each of query, key and value."""
        pairs = [f"{writer} -> {reader}" for writer, reader in zip(self["writer"], self["reader"])]
        return draw.heatmap(
            self.table[["Q", "K", "V"]].to_numpy(float), ["query", "key", "value"], pairs, "through",
            "writes -> reads", "composition score", ends=(0.0,), square=False, show_values=len(pairs) <= 64,
        )  # fmt: skip


def composition_scores(model: Model) -> CompositionScores:
    """Measure how strongly each head reads what heads of earlier layers write, through its query, key or value.

    Q is ||W_OV W_Q W_K^T|| / (||W_OV|| ||W_QK||) in Frobenius norms, K the same with W_K W_Q^T, and V is
    ||W_OV W_OV'|| / (||W_OV|| ||W_OV'||) (Elhage et al. 2021). Scores are between 0 and 1: about 1 / sqrt(d_model) for
    random matrices of rank d_head, and 0 for a head of zeros. Columns writer, reader, Q, K, V. Raises UnsupportedError
    for one layer.

    Example:

        >>> found = interp.composition_scores(interp.load("algorithmic/induction-exact")).to_frame()
        >>> found.loc[found["K"].idxmax(), ["writer", "reader"]].tolist()  # previous-token head -> induction head
        ['head 0.0', 'head 1.1']
    """
    subject = Subject.of(model)
    check_finite(subject)
    refuse_if(no_circuits(subject))
    if subject.model.cfg.n_layers < 2:
        raise UnsupportedError("heads of one layer do not compose: none reads what another writes")
    known = {part: factors(subject, part) for part in heads_of(subject)}
    rows = []
    for writer, (_, _, v1, o1) in known.items():
        for reader, (q2, k2, v2, o2) in known.items():
            if reader.layer <= writer.layer:
                continue
            ov, qk = product_norm(v1, o1), product_norm(q2, k2.T)
            by_query = _share(product_norm(v1, o1 @ q2 @ k2.T), ov * qk)
            by_key = _share(product_norm(v1, o1 @ k2 @ q2.T), ov * qk)
            by_value = _share(product_norm(v1, o1 @ v2 @ o2), ov * product_norm(v2, o2))
            rows.append((str(writer), str(reader), by_query, by_key, by_value))
    table = pd.DataFrame(rows, columns=["writer", "reader", "Q", "K", "V"])
    return CompositionScores(table, subject.model.cfg.d_model**-0.5)


def _share(value: float, most: float) -> float:
    """Return value / most, or 0 for a head of zeros."""
    return value / most if most > 0 else 0.0


def product_norm(left: Float[Tensor, "d k"], right: Float[Tensor, "k e"]) -> float:
    """Return the Frobenius norm of left @ right from the factors' Gram matrices, without building the product."""
    return float(((left.T @ left) * (right @ right.T).T).sum().clamp_min(0).sqrt())


ROUNDED = 1e-9
"""Eigenvalues up to this share of the largest possible one are 0, up to rounding."""


@dataclass(frozen=True, eq=False, repr=False)
class CopyingScores(Tabular):
    """Do heads copy tokens? Columns layer, head, copying, copied. eigenvalues: of each head's OV circuit, by its name.

    copying: the sum of the eigenvalues over the sum of their absolute values, from -1 to 1 (0 if all are 0). copied:
    the share of tokens whose own logit gets most if the head attends to them alone.
    """

    eigenvalues: Mapping[str, Tensor]

    @property
    def title(self) -> str:
        return "Copying scores of heads: sum of the OV circuit's eigenvalues over the sum of their absolute values"

    def plot(self) -> Figure:
        """Draw a bar for each head."""
        names = [f"head {layer}.{head}" for layer, head in zip(self["layer"], self["head"])]
        table = self.table.assign(part=names)
        return draw.bars(table, "part", "copying", x_title="head", y_title="copying score")


def copying_scores(model: Model) -> CopyingScores:
    """Measure whether heads copy tokens: eigenvalues of W_E W_OV W_U, from tokens to the same tokens' logits.

    Over the tokens that are answers, too, with norms as in token_circuits. Positive eigenvalues: a token that the head
    attends to gets a larger logit (Elhage et al. 2021). The result has .eigenvalues, complex, of each head. Raises
    UnsupportedError if fewer than two tokens are answers, or `no_table` gives a reason.

    Example:

        >>> found = interp.copying_scores(interp.load("algorithmic/induction-exact"))
        >>> found["copying"].round(2).tolist()  # head 1.1 is the induction head
        [0.0, 0.0, 0.0, 1.0]
    """
    subject = Subject.of(model)
    check_finite(subject)
    refuse_if(no_circuits(subject) or no_table(subject, "OV"))
    answers = [*subject.task.answer_words]
    shared = [word for word in subject.task.vocabulary if word in answers]
    if len(shared) < 2:
        raise UnsupportedError(f"task {subject.task.name} has fewer than two tokens that are answers, too")
    embedding = token_vectors(subject)[[subject.task.token_id(word) for word in shared]]
    out = readout_map(subject)[0][:, [answers.index(word) for word in shared]]
    rows, eigenvalues = [], {}
    for part in heads_of(subject):
        _, _, v, o = factors(subject, part)
        circuit = embedding @ v @ o @ out
        # The product in the other order is small and has the same eigenvalues, up to zeros.
        spectrum = torch.linalg.eigvals(o @ out @ embedding @ v)
        spectrum[spectrum.abs() <= ROUNDED * float((embedding @ v).norm() * (o @ out).norm())] = 0
        others = circuit.masked_fill(torch.eye(len(shared), dtype=torch.bool), -torch.inf).max(1).values
        copied = float((circuit.diagonal() > others).double().mean())
        rows.append((part.layer, part.head, _share(float(spectrum.real.sum()), float(spectrum.abs().sum())), copied))
        eigenvalues[str(part)] = spectrum
    return CopyingScores(pd.DataFrame(rows, columns=["layer", "head", "copying", "copied"]), eigenvalues)


# ---------------------------------------------------------------- exact tables of one layer


def circuit_tables(model: Model) -> TokenTables:
    """Return a model's token tables (leading axis 1), in float64. Raises UnsupportedError if circuits are not exact."""
    subject = Subject.of(model)
    if not subject.count_space:
        raise UnsupportedError(
            "token-by-token circuits are exact only for one attention layer without positions and with a linear "
            "readout; for this model, use model.QK and model.OV instead"
        )
    return subject.task_model.token_tables()


def qk_circuit(model: Model) -> pd.DataFrame:
    """Return the attention score of every query token for every key token; columns head, query, key, score."""
    subject = Subject.of(model)
    scores, words = circuit_tables(subject).scores[0], subject.task.vocabulary
    return tidy(scores, "score", head=range(len(scores)), query=words, key=words)


def ov_circuit(model: Model) -> pd.DataFrame:
    """Return each head's effect on every logit if it attends only to one token; columns head, source, token, logit."""
    subject = Subject.of(model)
    added, task = circuit_tables(subject).folded().values[0], subject.task
    return tidy(added, "logit", head=range(len(added)), source=task.vocabulary, token=task.answer_words)
