"""Small adders of every architecture that is certified by places, and all their inputs, run."""

import copy
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import interp
from interp.certificates import Certificate, certify, places
from interp.families.algorithmic import Addition
from interp.models.lens import HookedTransformer, config, quiet_construction
from interp.models.subject import Subject
from interp.tasks import IGNORED, Task

FORMATS: list[dict[str, Any]] = [
    {},
    {"plus": "0", "equals": "0"},
    {"lead": "[BOS]", "answer_order": "most"},
    {"lead": "0", "plus": "+", "equals": "0", "end": "0"},
    {"order": "most", "equals": ""},
    {"order": "most", "answer_order": "most", "end": "[END]", "plus": ""},
]


def stock(rng: np.random.Generator, task: Task, length: int, **fixed: Any) -> HookedTransformer:
    """A stock model of one layer with random weights, of a random architecture."""

    def one_of(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    heads = one_of(1, 1, 2, 4)
    fields: dict[str, Any] = {
        "n_layers": 1, "d_model": int(rng.integers(3, 9)), "n_heads": heads, "d_head": one_of(2, 4),
        "n_ctx": length + 2, "d_vocab": task.d_vocab, "d_vocab_out": task.n_out + one_of(0, 0, 2),
        "attn_only": one_of(False, False, True),
        "d_mlp": one_of(2, 5, 9), "act_fn": one_of("relu", "gelu", "gelu_new", "silu"),
        "normalization_type": one_of(None, "LN", "RMS", "RMS", "LNPre", "RMSPre"), "eps": one_of(1e-5, 1e-2),
        "positional_embedding_type": one_of("standard", "standard", "rotary", "alibi"), "device": "cpu",
        "use_qk_norm": one_of(False, True), "gated_mlp": one_of(False, True),
    } | fixed  # fmt: skip
    if fields["positional_embedding_type"] == "rotary":
        fields |= {"rotary_dim": 2, "rotary_adjacent_pairs": one_of(False, True)}
    if fields["n_heads"] == 4 and rng.random() < 0.5:
        fields["n_key_value_heads"] = 2
    if fields["attn_only"]:
        fields = {name: value for name, value in fields.items() if name not in ("d_mlp", "act_fn", "gated_mlp")}
    with quiet_construction():
        model = HookedTransformer(config(**fields), move_to_device=False)
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    scale = float(one_of(0.5, 1.0, 2.0))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            last = name.split(".")[-1]
            size = scale * (0.3 if last == "b" or last.startswith("b_") else 1)
            fan_in = parameter.shape[-2] if parameter.ndim > 1 else 1
            parameter.normal_(0, size / fan_in**0.5, generator=generator)
            if last == "w":
                parameter.add_(1)
    return model


ECONOMIES = ("tied", "low rank", "one matrix for keys and values", "split", "sinusoidal")


@torch.no_grad()
def economize(model: HookedTransformer, names: Collection[str]) -> None:
    """Write out what small adders save parameters by: equal matrices, matrices of low rank, positions from a formula,
    tokens and positions in dimensions of their own."""
    parts: Any = model
    attn, d = parts.blocks[0].attn, model.cfg.d_model
    matrices = [attn.W_Q, attn.W_K, attn.W_O] + ([] if model.cfg.attn_only else [parts.blocks[0].mlp.W_in])
    if "low rank" in names:
        for matrix in matrices:
            u, sizes, v = torch.linalg.svd(matrix, full_matrices=False)
            sizes[..., 2:] = 0
            matrix.copy_(u @ sizes.diag_embed() @ v)
    if "one matrix for keys and values" in names:
        attn.W_V.copy_(attn.W_K)
    if hasattr(parts, "pos_embed") and "sinusoidal" in names:
        rates = 50.0 ** (-(torch.arange(d) // 2) * 2 / d)
        angles = torch.arange(float(model.cfg.n_ctx))[:, None] * rates + torch.arange(d) % 2 * math.pi / 2
        parts.pos_embed.W_pos.copy_(angles.sin())
    if hasattr(parts, "pos_embed") and "split" in names:
        parts.embed.W_E[:, d // 2 :] = 0
        parts.pos_embed.W_pos[:, : d // 2] = 0
    if "tied" in names:
        width = min(len(parts.embed.W_E), model.cfg.d_vocab_out)
        parts.unembed.W_U[:, :width] = parts.embed.W_E[:width].T


def exact(task: Addition, sharp: float = 40.0) -> HookedTransformer:
    """An adder that is right by construction, least digit first. One head sees the digits at hand, one those before.

    The digits before and the digit of the sum there, the token that is read, tell the carry: a + b - s is 0 or -1
    without one, base or base - 1 with one. So y = (a + b at hand) + (a + b - s before) / base is the sum with its
    carry, less 0.1 at most for base 10; two neurons take off base where y reaches it, and digit j scores 2 j y - j^2.
    """
    n, base = task.length, task.base
    fields = {
        "n_layers": 1, "d_model": n + 4, "n_heads": 2, "d_head": n, "n_ctx": n, "d_vocab": task.d_vocab, "d_mlp": 2,
        "d_vocab_out": task.n_out, "act_fn": "relu", "normalization_type": None, "attn_scale": 1.0, "device": "cpu",
    }  # fmt: skip
    with quiet_construction():
        model = HookedTransformer(config(**fields), move_to_device=False)
    value, hand, before, less = n, n + 1, n + 2, n + 3
    a, b, _ = task.digit_places.tolist()
    seen = torch.zeros(2, n, n)
    for place, at in enumerate(task.read_places.tolist()):
        for head, which in ((0, place), (1, place - 1)):
            keys = [a[which], b[which]] if 0 <= which < task.n_digits else [task.answer_starts - 1]
            seen[head, at, keys] = sharp
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E[:base, value] = torch.arange(float(base))
        model.pos_embed.W_pos[:, :n] = torch.eye(n)
        attn, mlp = model.blocks[0].attn, model.blocks[0].mlp
        attn.W_Q[:, :n], attn.W_K[:, :n] = seen, torch.eye(n)
        attn.W_V[:, value, 0] = 1.0
        attn.W_O[0, 0, hand], attn.W_O[1, 0, before] = 2.0, 2.0
        y = torch.zeros(n + 4)
        y[[hand, before, value]] = torch.tensor([1.0, 1 / base, -1 / base])
        mlp.W_in.copy_(y[:, None].expand(-1, 2) / 0.7)
        mlp.b_in.copy_(torch.tensor([0.9 - base, 0.2 - base]) / 0.7)
        mlp.W_out[:, less] = torch.tensor([-1.0, 1.0]) * base
        y[less] = 1.0
        digit = torch.arange(float(base))
        model.unembed.W_U[:, :base] = 2 * y[:, None] * digit
        model.unembed.b_U[:base] = -(digit**2)
        model.unembed.b_U[base:] = -1e4
    return model


def adder(base: int = 3, digits: int = 2) -> interp.TaskModel:
    """A right adder with a last RMS norm, which changes no answer: the bias of its readout is read from positions."""
    task = Addition(base=base, digits=digits, plus="0", equals="0")
    stock, n = exact(task, sharp=12.0), task.length
    layer = {"n_heads": 2, "d_head": n, "scale": 1.0, "mlp": {"d_mlp": 2}}
    spec = {"task": {"name": "addition", "parameters": dict(task.ref.parameters)}, "d_model": n + 4, "layers": [layer],
            "positions": "learned", "max_length": n, "final_norm": "rms_norm", "readout_bias": False}  # fmt: skip
    model = interp.TaskModel(interp.ModelSpec.from_dict(spec), seed=0)
    with torch.no_grad():
        given = dict(stock.named_parameters())
        for name, parameter in model.named_parameters():
            if name in given:
                parameter.copy_(given[name])
        model.ln_final.w.fill_(1)
        model.unembed.W_U[:n] += stock.unembed.b_U
    return model


def trained(
    model: HookedTransformer, task: Task, steps: int, seed: int = 0, economies: Collection[str] = ()
) -> HookedTransformer:
    """The same after some steps on the task, so that it is right on some inputs."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(steps):
        batch = task.sample(256, "train", seed=seed * 1000 + step)
        classes = task.classes(batch)
        read = classes != IGNORED
        loss = torch.nn.functional.cross_entropy(model(batch.tokens)[read], classes[read])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        economize(model, economies)
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * (1 - step / steps) + 1e-4
    return model


def damaged(rng: np.random.Generator, model: HookedTransformer) -> HookedTransformer:
    """A copy with one number changed, or all a little."""
    found = copy.deepcopy(model)
    parameters = [one for one in found.parameters() if one.numel() > 1]
    with torch.no_grad():
        if rng.random() < 0.3:
            one = parameters[int(rng.integers(len(parameters)))].view(-1)
            one[int(rng.integers(len(one)))] += float(rng.normal())
        else:
            size, generator = 10 ** rng.uniform(-3.5, -1), torch.Generator().manual_seed(int(rng.integers(2**31)))
            for one in parameters:
                one += torch.randn(one.shape, generator=generator) * size * one.abs().mean()
    return found


@dataclass(frozen=True)
class Truth:
    """What running every input shows: margins by input and read, in float64, and which answers are wrong as run."""

    margins: Tensor
    wrong: Tensor


@torch.no_grad()
def truth(subject: Subject) -> Truth:
    """All inputs, run in float64 and as the model is, every output of the model taken for an answer."""
    model = subject.model
    double = copy.deepcopy(model).to(torch.float64, print_details=False)
    margins, wrong = [], []
    for batch in subject.task.inputs(4096):
        classes = subject.task.classes(batch)
        read = classes != IGNORED
        right = classes[read].view(len(batch), -1)
        if subject.output_ids is not None:
            right = subject.output_ids[right]
        tokens = subject.inputs(batch.tokens)
        out = double(tokens)[read].view(*right.shape, -1)
        rest = out.scatter(2, right[..., None], -torch.inf).amax(2)
        margins.append(out.gather(2, right[..., None])[..., 0] - rest)
        wrong.append(model(tokens)[read].view(*right.shape, -1).argmax(2) != right)
    return Truth(torch.cat(margins), torch.cat(wrong))


def compare(subject: Subject, found: Certificate, true: Truth) -> None:
    """Every statement of a certificate against all inputs."""
    answers = found.tables["answers"]
    n = len(true.margins)
    assert found.n_inputs == n
    for column, row in enumerate(answers.itertuples()):
        margin = true.margins[:, column]
        assert row.right <= int((margin > 0).sum())
        assert row.wrong <= int((margin < 0).sum())
        assert float(margin.min()) >= row.margin - 1e-9 * (1 + abs(row.margin))
        assert row.right <= int((~true.wrong[:, column]).sum())
        assert row.wrong <= int(true.wrong[:, column].sum())
    least, most = found.tables["inputs"].iloc[0][["wrong at least", "wrong at most"]]
    assert least <= int(true.wrong.any(1).sum()) <= most
    assert least <= int((true.margins <= 0).any(1).sum()) <= most
    if found.status == "certified":
        assert not true.wrong.any()
        assert float(true.margins.min()) > 0
    if found.status == "refuted":
        assert true.wrong.any()
        text, said = found.counterexample.split(": the answer at position ")
        tokens = torch.tensor([subject.task.parse(text)])
        at = int(said.split()[0])
        right = int(subject.task.classes(subject.task.batch(tokens))[0, at])
        right = right if subject.output_ids is None else int(subject.output_ids[right])
        assert int(subject.model(subject.inputs(tokens))[0, at].argmax()) != right
    if found.n_errors is not None:
        assert found.n_errors == int(true.wrong.sum())
    if not answers[["right", "wrong"]].sum(axis=1).ne(n).any():
        assert least == most or found.n_errors is not None


KINDS = ("random", "damaged", "trained", "damaged", "damaged", "exact")


def one_case(seed: int) -> tuple[str, str, int, int]:
    """One seeded adder, certified and compared with all its inputs; what it was, the verdict, inputs, wrong ones."""
    rng, kind = np.random.default_rng(seed), KINDS[seed % len(KINDS)]
    base, digits = [(10, 2), (3, 3), (4, 2), (2, 3), (5, 2), (3, 2)][int(rng.integers(6))]
    form = FORMATS[int(rng.integers(len(FORMATS)))]
    if kind in ("exact", "damaged"):
        form = {name: value for name, value in form.items() if name not in ("answer_order", "end")}
        task = Addition(base=base, digits=digits, **(form | {"equals": form.get("equals") or "="}))
        model = exact(task, sharp=float(rng.uniform(3, 30)))
        model = model if kind == "exact" else damaged(rng, model)
    else:
        task = Addition(base=base, digits=digits, **form)
        model = stock(rng, task, task.length)
        economies = [name for name in ECONOMIES if rng.random() < 0.3]
        economize(model, economies)
        model = model if kind == "random" else trained(model, task, 25, seed, economies)
    subject = Subject.external(model, task, outputs={word: at for at, word in enumerate(task.answer_words)})
    found = places.certify_places(certify.converted_subject(subject), seconds=1)
    true = truth(subject)
    compare(subject, found, true)
    return kind, found.status, len(true.margins), int(true.wrong.any(1).sum())
