"""Does any certificate say what is false? Models at the edge of every method against exact arithmetic.

python analyses/attack_certificates.py --out out/attack [--quick | --smoke]

For every method small models are drawn (seeded): weights from a coarse grid, so that ties occur, or normal ones, or of
exact models; factors from 1e-25 to 1e25 on single matrices, so that numbers under- and overflow; scores of up to a
thousand; and then one output is shifted so that a margin is nearly nothing: 0, or about what rounding does. Each is
certified, and every input of its domain is run: by the model itself, and in numbers of 60 digits by a forward pass that
is written out here. False is: "certified" with an input that the model, or the exact margin, gets wrong; "refuted" with
every input right, unless no margin is below what rounding may do, which the certificate then says; an accuracy or a
worst margin that the exact ones contradict; a mismatch of proof and model.
Full: 20,000 models; quick: 1,000; smoke: 14.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import torch
from shared.script import Arguments, run

import interp
from interp.certificates.certificate import registered_methods, within_rounding
from interp.certificates.probes import Mismatch, compare
from interp.errors import InterpError, UnsupportedError
from interp.families.count01.tasks import Count01, CountBox
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.memorization import lookup
from interp.families.memorization.constructions.models import memorization_spec
from interp.models.architecture.answers import read_mask
from interp.models.architecture.task_model import TaskModel
from interp.models.constructions import construct
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef
from interp.report import Report
from interp.tasks import IGNORED, Batch

DIGITS = 60
AT_ONCE = 20
EDGES = (0.0, 1e-9, -1e-9, 1e-7, -1e-7, 3e-6, -3e-6, 1e-4, -1e-4, 1e-16, -1e-16, 1e-14, -1e-14) + (None,) * 6
SCALES = (1.0, 1.0, 1.0, 1e-25, 1e-12, 1e-6, 1e6, 1e12, 1e25)


# ---------------------------------------------------------------- the exact forward pass


def exact(model: TaskModel, tokens: list[int]) -> list[list[Any]]:
    """Outputs at every position of one row without padding, written out in numbers of DIGITS digits."""
    mpmath.mp.dps = DIGITS
    W = {name: _mp(p.detach().double().numpy()) for name, p in model.named_parameters()}
    spec, n = model.spec, len(tokens)
    position = _mp(model.pos_embed(torch.tensor([tokens]))[0].detach().double().numpy())
    x = W["embed.W_E"][tokens] + position
    for index, layer in enumerate(spec.layers):
        at = f"blocks.{index}."
        inner = _norm(x, W, at + "ln1", layer.norm_eps) if layer.norm == "pre" else x
        inner = inner + W[at + "attn.W_pos"][:n] if at + "attn.W_pos" in W else inner
        out = x
        for head in range(layer.n_heads):
            seen = _pattern(spec, layer, W, at + "attn.", head, inner)
            value = inner.dot(W[at + "attn.W_V"][head]) if at + "attn.W_V" in W else inner
            value = value + W[at + "attn.b_V"][head] if layer.bias.v else value
            mixed = seen.dot(value)
            out = out + (mixed if layer.value_output == "identity" else mixed.dot(W[at + "attn.W_O"][head]))
        x = out + W[at + "attn.b_O"] if layer.bias.o else out
        x = _norm(x, W, at + "ln1", layer.norm_eps) if layer.norm == "post" else x
        if layer.mlp is not None:
            read = _norm(x, W, at + "ln2", layer.norm_eps) if layer.norm == "pre" else x
            hidden = read.dot(W[at + "mlp.W_in"]) + W[at + "mlp.b_in"]
            act = (lambda v: max(v, 0)) if layer.mlp.activation == "relu" else (lambda v: v * mpmath.ncdf(v))
            x = x + np.frompyfunc(act, 1, 1)(hidden).dot(W[at + "mlp.W_out"]) + W[at + "mlp.b_out"]
            x = _norm(x, W, at + "ln2", layer.norm_eps) if layer.norm == "post" else x
    x = _norm(x, W, "ln_final", spec.layers[-1].norm_eps) if spec.final_norm != "none" else x
    if spec.readout == "relu_mlp":
        hidden = np.frompyfunc(lambda v: max(v, 0), 1, 1)(x.dot(W["unembed.W_in"]) + W["unembed.b_in"])
        return (hidden.dot(W["unembed.W_out"]) + W["unembed.b_out"]).tolist()
    return (x.dot(W["unembed.W_U"]) + (W["unembed.b_U"] if spec.readout_bias else 0)).tolist()


def _pattern(spec: ModelSpec, layer: Layer, W: dict[str, Any], at: str, head: int, x: np.ndarray) -> np.ndarray:
    n = len(x)
    if layer.mixing == "linear":
        scores = W[at + "W_mix"][head]
    else:
        q = x.dot(W[at + "W_Q"][head]) + (W[at + "b_Q"][head] if layer.bias.q else 0)
        k = (x if layer.query_key == "full" else x.dot(W[at + "W_K"][head])) + (
            W[at + "b_K"][head] if layer.bias.k else 0
        )
        scores = q.dot(k.T) * mpmath.mpf(layer.factor(spec.d_model))
        length = {"none": None, "current": n}.get(str(layer.log_length), layer.log_length)
        scores = scores if length is None else scores * mpmath.log(length)
    if layer.normalizer == "none":
        return scores
    rows = []
    for i, row in enumerate(scores):
        keys = range(i + 1) if spec.direction == "causal" else range(n)
        most = max(row[j] for j in keys)
        raised = [mpmath.exp(row[j] - most) if j in keys else mpmath.mpf(0) for j in range(n)]
        rows.append([value / sum(raised) for value in raised])
    return np.array(rows, dtype=object)


def _norm(x: np.ndarray, W: dict[str, Any], name: str, eps: float) -> np.ndarray:
    rows = []
    for row in x:
        center = row - sum(row) / len(row)
        rows.append(center / mpmath.sqrt(sum(c * c for c in center) / len(row) + mpmath.mpf(eps)))
    return np.array(rows, dtype=object) * W[name + ".w"] + W[name + ".b"]


def _mp(array: np.ndarray) -> np.ndarray:
    return np.frompyfunc(lambda v: mpmath.mpf(float(v)), 1, 1)(array)


def exact_margins(model: TaskModel, batch: Batch) -> list[Any]:
    """The exact margin of every answer: right output minus the best wrong one, or the signed single output."""
    found: list[Any] = []
    for row, length, classes in zip(batch.tokens.tolist(), batch.lengths.tolist(), model.task.classes(batch).tolist()):
        outputs = exact(model, row[:length])
        places = [i for i, c in enumerate(classes) if c != IGNORED]
        if model.spec.readout_at != "all":
            places = places[:1] if model.spec.readout_at != "last" else [length - 1]
        for place in places:
            out, right = outputs[place], classes[place]
            if model.spec.decision == "sigmoid":
                found.append(out[0] if right == 1 else -out[0])
            else:
                others = [value for i, value in enumerate(out) if i != right]
                found.append(out[right] - max(others) if others else mpmath.inf)
    return found


# ---------------------------------------------------------------- models at the edge


@dataclass(frozen=True)
class Attack:
    """A model, the options of its certificate, and every input of the domain that these name."""

    model: TaskModel
    options: dict[str, Any]
    batch: Batch


Draw = Callable[[np.random.Generator], Attack]
DRAWS: dict[str, Draw] = {}


def attacks(method: str) -> Callable[[Draw], Draw]:
    def add(draw: Draw) -> Draw:
        DRAWS[method] = draw
        return draw

    return add


ATTENTION = ("W_Q", "W_O", "b_Q", "b_O", "W_K", "W_V", "b_K", "b_V")


def _parameters(model: TaskModel) -> list[tuple[str, torch.nn.Parameter]]:
    """All parameters in one order, whichever version of TransformerLens holds them: a seed draws the same model."""
    owners = [name for name, _ in model.named_modules()]

    def place(item: tuple[str, torch.nn.Parameter]) -> tuple[int, int]:
        owner, _, name = item[0].rpartition(".")
        return owners.index(owner), ATTENTION.index(name) if name in ATTENTION else len(ATTENTION)

    return sorted(model.named_parameters(), key=place)


def _fill(model: TaskModel, rng: np.random.Generator) -> None:
    """Weights from a grid or normal, and factors on single matrices."""
    grid, wild, loud = rng.random() < 0.5, rng.random() < 0.4, rng.random() < 0.2
    with torch.no_grad():
        for name, parameter in _parameters(model):
            shape = tuple(parameter.shape)
            values = rng.integers(-2, 3, shape) / 2 if grid else rng.normal(size=shape)
            factor = rng.choice(SCALES) if wild else 1.0
            if loud and name.endswith(("W_Q", "W_K")):
                factor = 30.0
            parameter.copy_(torch.from_numpy(np.array(values * factor, dtype=float)))


def _to_the_edge(model: TaskModel, batch: Batch, rng: np.random.Generator) -> None:
    """Shift one output so that one input's margin is nearly nothing."""
    edge = EDGES[rng.integers(len(EDGES))]
    bias = dict(model.named_parameters()).get("unembed.b_U", dict(model.named_parameters()).get("unembed.b_out"))
    if edge is None or bias is None:
        return
    margins = [float(m) for m in exact_margins(model, batch)]
    classes = model.task.classes(batch)
    classes = classes[classes != IGNORED].tolist()
    at = int(np.argmin(np.abs(margins))) if rng.random() < 0.7 else int(rng.integers(len(margins)))
    if not np.isfinite(margins[at]):
        return
    sign = 1.0 if model.spec.decision == "argmax" or classes[at] == 1 else -1.0
    size = max(abs(margins[at]), 1e-300)
    with torch.no_grad():
        bias[classes[at] if len(bias) > 1 else 0] += sign * (-margins[at] + edge * min(size, 1e3))


def _dtype(rng: np.random.Generator) -> str:
    return "float32" if rng.random() < 0.6 else "float64"


@attacks("count box")
def count_box(rng: np.random.Generator) -> Attack:
    heads, d_head, norm = int(rng.integers(1, 3)), int(rng.integers(1, 3)), str(rng.choice(["none", "none", "pre"]))
    layer = Layer(n_heads=heads, d_head=d_head, norm=norm, bias=Bias(v=rng.random() < 0.5, o=rng.random() < 0.5))
    spec = ModelSpec(
        task=TaskRef(name="count01"), d_model=int(rng.integers(1, 4)), layers=(layer,), readout_at="=",
        dtype=_dtype(rng),
    )  # fmt: skip
    if rng.random() < 0.6:
        model = interp.build("count01/minimal", dtype=spec.dtype)
        scale = 10.0 ** rng.integers(-25, 25)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.mul_(scale if name.startswith("unembed") else 1.0)
            if rng.random() < 0.5:
                shift = 10.0 ** rng.integers(-15, 15)
                model.blocks[0].attn.W_V.mul_(shift)
                model.blocks[0].attn.W_O.div_(shift)
    else:
        model = TaskModel(spec, dtype=spec.dtype)
        _fill(model, rng)
    box, task = CountBox((0, 2), (0, 2), (0, 1)), model.task
    assert isinstance(task, Count01)
    batch = task.sentences(box.counts())
    batch = Batch(batch.tokens[:, :-2], batch.lengths - 2, batch.labels)
    batch = Batch(torch.cat([batch.tokens, torch.full((len(batch), 2), 7)], 1), batch.lengths + 2, batch.labels)
    _to_the_edge(model, batch, rng)
    return Attack(model, {"box": box}, batch)


@attacks("occurrences of every token")
def histogram(rng: np.random.Generator) -> Attack:
    kind = str(rng.choice(["lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax"]))
    task = Histogram(T=int(rng.integers(1, 4)), L=int(rng.integers(1, 4)), bos=kind.startswith("bos"))
    dtype = _dtype(rng)
    if rng.random() < 0.4 and task.T > 1 and task.L > 1:
        model = interp.build(f"histogram/{kind}-exact", T=task.T, L=task.L, p=task.T, dtype=dtype)
        with torch.no_grad():
            model.unembed.W_out.mul_(10.0 ** rng.integers(-30, 30)) if rng.random() < 0.5 else None
    else:
        model = interp.build(histogram_spec(kind, task, int(rng.integers(1, 4)), int(rng.integers(1, 4)), dtype))
        _fill(model, rng)
    batch = next(model.task.inputs(chunk=model.task.n_inputs))
    _to_the_edge(model, batch, rng)
    return Attack(model, {"samples": 0}, batch)


@attacks("strings by counts and seen positions")
def strings(rng: np.random.Generator) -> Attack:
    model = construct(f"languages/{rng.choice(['one', 'first', 'parity'])}").model(dtype=_dtype(rng))
    _disturb(model, rng)
    batch = model.task.enumerate_up_to(3)
    _to_the_edge(model, batch, rng)
    return Attack(model, {"longest": 3}, batch)


@attacks("proof of PALINDROME")
def palindrome(rng: np.random.Generator) -> Attack:
    model = construct("languages/palindrome", str(rng.choice(["binary", "mirror"]))).model(dtype=_dtype(rng))
    if rng.random() < 0.3:
        _disturb(model, rng)
    return Attack(model, {"longest": 4}, model.task.enumerate_up_to(4))


@attacks("every context of the table")
def table(rng: np.random.Generator) -> Attack:
    task = lookup(N=int(rng.integers(2, 4)), M=int(rng.integers(2, 5)), seed=int(rng.integers(1000)))
    if rng.random() < 0.5:
        model = interp.build("memorization/theorem1", table=task, d_model=task.n_out, dtype=_dtype(rng))
        with torch.no_grad():
            model.unembed.W_U.mul_(10.0 ** rng.integers(-30, 30))
        return Attack(model, {}, task.all_contexts())
    wide = int(rng.integers(0, 2)) * 3
    spec = memorization_spec(task, int(rng.integers(1, 4)), int(rng.integers(1, 3)) if not wide else 1, d_mlp=wide)
    model = interp.build(spec.replace(dtype=_dtype(rng), readout_bias=True), seed=0)
    _fill(model, rng)
    batch = task.all_contexts()
    _to_the_edge(model, batch, rng)
    return Attack(model, {}, batch)


@attacks("every multiset")
def multisets(rng: np.random.Generator) -> Attack:
    v = int(rng.integers(2, 5))
    if rng.random() < 0.6:
        beta = float(rng.choice([1.2, 3.0, 30.0, 300.0]))
        model = interp.build("algorithmic/max-of-k-exact", K=2, v=v, beta=beta, dtype=_dtype(rng))
        _rescale(model, rng) if rng.random() < 0.7 else _disturb(model, rng)
    else:
        task = TaskRef(name="max-of-k", parameters=(("K", 2), ("v", v)))
        layer = Layer(n_heads=int(rng.integers(1, 3)), d_head=2, norm=str(rng.choice(["none", "pre"])))
        sizes = {"d_model": int(rng.integers(1, 4)), "readout_at": "last", "dtype": _dtype(rng)}
        model = TaskModel(ModelSpec(task=task, layers=(layer,), **sizes), dtype=sizes["dtype"])
        _fill(model, rng)
    batch = next(iter(model.task.inputs()))
    _to_the_edge(model, batch, rng)
    return Attack(model, {}, batch)


@attacks("every string, with a rounding bound")
def recognizers(rng: np.random.Generator) -> Attack:
    if rng.random() < 0.5:  # an exact model with biases of 0, which no argument about it takes into account
        exact = construct(f"languages/{rng.choice(['one', 'first', 'parity'])}").model()
        layers = tuple(layer.model_copy(update={"bias": Bias(q=True)}) for layer in exact.spec.layers)
        tensors = {name: p.detach() for name, p in exact.named_parameters()}
        for index, layer in enumerate(layers):
            tensors[f"blocks.{index}.attn.b_Q"] = torch.zeros(layer.n_heads, layer.d_head, dtype=torch.float64)
        model = TaskModel(exact.spec.replace(layers=layers), exact.task, tensors, dtype=_dtype(rng))
        _disturb(model, rng) if rng.random() < 0.5 else _rescale(model, rng)
        batch = model.task.enumerate_up_to(3)
        _to_the_edge(model, batch, rng)
        return Attack(model, {"longest": 3}, batch)
    norm = str(rng.choice(["none", "pre", "post"]))
    mlp = MLP(d_mlp=3, activation=str(rng.choice(["relu", "gelu"]))) if rng.random() < 0.7 else None
    layer = Layer(d_head=2, norm=norm, bias=Bias(q=True, k=True, v=True, o=True), mlp=mlp)
    spec = ModelSpec(
        task=TaskRef(name=str(rng.choice(["parity", "first"]))), d_model=3, direction="bidirectional",
        layers=(layer,) * int(rng.integers(1, 3)), readout="scalar", readout_at="[CLS]", decision="sigmoid",
        positions="first" if rng.random() < 0.5 else "none", dtype=_dtype(rng),
        final_norm="layer_norm" if norm == "pre" and rng.random() < 0.5 else "none",
    )  # fmt: skip
    model = TaskModel(spec, dtype=spec.dtype)
    _fill(model, rng)
    batch = model.task.enumerate_up_to(3)
    _to_the_edge(model, batch, rng)
    return Attack(model, {"longest": 3}, batch)


@attacks("every input, as run")
def as_run(rng: np.random.Generator) -> Attack:
    T = int(rng.integers(2, 4))
    if rng.random() < 0.6:  # an exact model with positions of 0, or nearly
        exact = interp.build("histogram/dot-exact", T=T, L=3, p=T)
        spec = exact.spec.replace(positions="learned", max_length=3)
        tensors = {name: p.detach() for name, p in exact.named_parameters()}
        noise = rng.normal(size=(3, spec.d_model)) * rng.choice([0.0, 1e-9, 1e-6, 1e-3])
        model = TaskModel(spec, exact.task, tensors | {"pos_embed.W_pos": torch.from_numpy(noise)}, dtype=_dtype(rng))
        _rescale(model, rng) if rng.random() < 0.5 else None
    else:
        task = TaskRef(name="histogram", parameters=(("T", T), ("L", 3)))
        layer = Layer(d_head=2, mlp=MLP(d_mlp=3) if rng.random() < 0.5 else None)
        spec = ModelSpec(task=task, d_model=2, layers=(layer,), positions="learned", max_length=3, dtype=_dtype(rng))
        model = TaskModel(spec, dtype=spec.dtype)
        _fill(model, rng)
    batch = next(model.task.inputs(chunk=model.task.n_inputs))
    _to_the_edge(model, batch, rng)
    return Attack(model, {}, batch)


@attacks("every product of token sets")
def products(rng: np.random.Generator) -> Attack:
    K, v = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    placed = {"positions": "learned", "max_length": K + 1} if rng.random() < 0.6 else {}
    if rng.random() < 0.4:  # an exact model, with positions of 0, or nearly
        exact = interp.build("algorithmic/max-of-k-exact", K=K, v=v, beta=float(rng.choice([1.2, 3.0, 30.0, 300.0])))
        spec, tensors = exact.spec.replace(origin=None, **placed), {n: p.detach() for n, p in exact.named_parameters()}
        noise = rng.normal(size=(K + 1, spec.d_model)) * rng.choice([0.0, 1e-9, 1e-6, 1e-3])
        tensors |= {"pos_embed.W_pos": torch.from_numpy(noise)} if placed else {}
        model = TaskModel(spec, exact.task, tensors, dtype=_dtype(rng))
        _rescale(model, rng) if rng.random() < 0.7 else _disturb(model, rng)
    else:
        task = TaskRef(name="max-of-k", parameters=(("K", K), ("v", v)))
        layer = Layer(d_head=2, norm=str(rng.choice(["none", "pre"])), bias=Bias(q=rng.random() < 0.5, o=True))
        sizes = {"d_model": int(rng.integers(1, 4)), "readout_at": str(rng.choice(["=", "last"])), "dtype": _dtype(rng)}
        direction = str(rng.choice(["causal", "bidirectional"]))
        model = TaskModel(ModelSpec(task=task, layers=(layer,), direction=direction, **sizes, **placed))
        _fill(model, rng)
    batch = next(iter(model.task.inputs()))
    _to_the_edge(model, batch, rng)
    return Attack(model, {}, batch)


def _rescale(model: TaskModel, rng: np.random.Generator) -> None:
    """Outputs as large or small as the format just holds, or does not, by way of the readout."""
    with torch.no_grad():
        factor = 10.0 ** rng.integers(-38, 34)
        for name, parameter in model.named_parameters():
            if name in ("unembed.W_U", "unembed.b_U", "unembed.W_out", "unembed.b_out"):
                parameter.mul_(factor)


def _disturb(model: TaskModel, rng: np.random.Generator) -> None:
    """Turn one number of an exact model, or scale one of its matrices."""
    parameters = _parameters(model)
    _, chosen = parameters[rng.integers(len(parameters))]
    with torch.no_grad():
        if rng.random() < 0.5:
            flat = chosen.view(-1)
            flat[rng.integers(len(flat))] += float(rng.choice([1.0, -1.0, 1e-7, -0.5]))
        else:
            chosen.mul_(10.0 ** rng.integers(-30, 30))


# ---------------------------------------------------------------- judgement


def judge(method: str, attack: Attack) -> tuple[str, str]:
    """The status that the certificate gave ("none" where refused), and what is false about it (or nothing)."""
    model, batch = attack.model, attack.batch
    if not all(bool(p.isfinite().all()) for p in model.parameters()):
        return "none", ""
    try:
        found = certify_by(method, model, attack.options)
    except Mismatch as error:
        return "mismatch", f"{method}: {error}"
    except InterpError:
        return "none", ""
    margins = exact_margins(model, batch)
    says = list(_false(found, margins, *_errors(model, batch)))
    return found.status, "; ".join(says)


def certify_by(name: str, model: TaskModel, options: dict[str, Any]) -> interp.Certificate:
    """The certificate of one method, whichever others would hold, compared with the model as interp.certify does."""
    method = registered_methods()[name]
    if (reason := method.refusal(model)) is not None:
        raise UnsupportedError(reason)
    found = method.run(model, **options)
    compare(model, found.probes)
    return found


@torch.no_grad()
def _errors(model: TaskModel, batch: Batch) -> tuple[int, int]:
    """How many answers of predict() are wrong; and how many more may be: right ones by luck, where an output is not
    finite or outputs tie, for there the answer is whatever stands first."""
    read = read_mask(model.task, batch, model.spec.readout_at)
    out = model(batch.tokens)
    lead = out[..., 0] if out.shape[-1] == 1 else out.topk(2).values.diff()[..., 0]
    chance = ~out.isfinite().all(-1) | (lead == 0)
    right = model.predict(batch.tokens) == batch.labels
    right = right if right.ndim > 1 else right[:, None].expand_as(read)
    return int((~right & read).sum()), int((right & chance & read).sum())


def _false(found: interp.Certificate, margins: list[Any], wrong: int, lucky: int = 0) -> Iterator[str]:
    reals = found.arithmetic.startswith("reals")
    bad = sum(1 for margin in margins if margin < 0)
    tied = sum(1 for margin in margins if margin == 0)
    if found.status == "certified" and wrong:
        yield f"certified, and predict errs {wrong} times"
    if found.status == "refuted" and not wrong and not within_rounding(found):
        yield "refuted, and predict never errs"
    if not reals:
        # Another batch shape may round otherwise, and outputs that are not finite are wrong.
        near = sum(1 for margin in margins if abs(margin) <= (found.rounding or 0.0))
        if not wrong - near <= (found.n_errors or 0) <= wrong + near + lucky:
            yield f"{found.n_errors} errors as run, and predict errs {wrong} times"
        return
    if found.status == "certified" and bad + tied:
        yield f"certified, and {bad + tied} exact margins are not positive"
    # The proof of PALINDROME speaks of the numbers that the weights were rounded from.
    slip = (found.rounding or 0.0) if found.method.startswith("proof") else 0.0
    if found.status == "certified" and found.worst_margin > min(margins) + slip:
        yield f"worst margin {found.worst_margin:g}, and one is {float(min(margins)):g}"
    if len(margins) == 0 or ("strings" in found.method and found.n_inputs != len(margins)):
        return
    low, high = found.accuracy if isinstance(found.accuracy, tuple) else (found.accuracy, found.accuracy)
    least, most = 1 - (bad + tied) / len(margins), 1 - bad / len(margins)
    if low > most + 1e-9 or high < least - 1e-9:
        yield f"accuracy {low:g} to {high:g}, and exactly it is {least:g} to {most:g}"


def attack_many(method: str, seeds: range) -> pd.DataFrame:
    """One row a model: its seed, status and what is false."""
    index = list(DRAWS).index(method)
    rows = []
    for seed in seeds:
        attack = DRAWS[method](np.random.default_rng((seed, index)))
        rows.append((method, seed, *judge(method, attack)))
    return pd.DataFrame(rows, columns=["method", "seed", "status", "false"])


def study(arguments: Arguments) -> Report:
    """All methods in turn, so that a run that is cut short has attacked each of them: models.csv grows meanwhile."""
    each = arguments.pick(20_000, 1_000, 14) // len(DRAWS)
    started, parts = time.perf_counter(), []
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "models.csv"
    log.unlink(missing_ok=True)
    for first in range(0, each, AT_ONCE):
        for method in DRAWS:
            parts.append(attack_many(method, range(first, min(each, first + AT_ONCE))))
            parts[-1].to_csv(log, mode="a", header=len(parts) == 1, index=False)
    rows = pd.concat(parts, ignore_index=True)
    table = rows.groupby(["method", "status"]).size().unstack(fill_value=0).reset_index()
    false = rows[rows["false"] != ""]
    report = Report("An attack on certificates")
    report.heading(
        "Models at the edge", "How many models each method certified, refuted, left open or would not judge."
    )
    report.add_table("statuses", table, "Certificates by method and status.")
    report.add_table("false", false.reset_index(drop=True), "Certificates that say what is false.")
    report.verdict = (
        f"{len(rows):,} models at the edge, {int((rows['status'] == 'certified').sum()):,} certified, "
        f"{int((rows['status'] == 'refuted').sum()):,} refuted: {len(false)} certificates say what is false "
        f"({time.perf_counter() - started:.0f} s)."
    )
    return report


if __name__ == "__main__":
    run(study, __doc__)
