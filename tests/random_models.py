"""Random small models of any kind with their tasks, inputs and changes, for the tests of restarted runs."""

import random
from typing import Any

import short_count01
import torch
from standins import TASKS

from interp.errors import SpecError
from interp.measures.runs import Edit, Neuron, Site, heads_of, neuron_layers, parts_of
from interp.models.architecture.parameters import model_problems, parameter_shapes
from interp.models.architecture.task_model import TaskModel
from interp.models.lens import HookedTransformer, config, quiet_construction
from interp.models.spec import MLP, Bias, Layer, ModelSpec
from interp.models.subject import Subject
from interp.tasks import Batch, Task, make_task

LENGTH = 22
"""The longest input of any of the tasks, with its answer."""


def random_task(draw: random.Random) -> Task:
    """A task read at the last or at all positions, at a first one before padding, or at a token anywhere."""
    name = draw.choice([*TASKS, short_count01.Short.name])
    return TASKS[name]() if name in TASKS else make_task(name)


def random_subject(seed: int) -> Subject:
    """A task model or a stock HookedTransformer with large random weights."""
    draw = random.Random(seed)
    while True:
        task = random_task(draw)
        made = stock(draw, task) if draw.random() < 0.4 else task_model(draw, task)
        if made is not None:
            break
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.6
            parameter.copy_(noise.to(parameter) + (1.0 if parameter.ndim == 1 else 0.0))
    return made


def task_model(draw: random.Random, task: Task) -> Subject | None:
    """A task model; None if the draw is not a valid spec."""
    causal, heads = draw.random() < 0.6, draw.choice([1, 2, 4])
    norm, kind = draw.choice(["none", "pre", "pre", "post"]), draw.choice(["layer", "rms"])
    positions = draw.choice(["none", "learned", "sinusoidal", "rotary", "alibi"])
    shared: dict[str, Any] = {
        "n_heads": heads, "d_head": draw.choice([2, 4]), "norm": norm, "norm_kind": kind if norm != "none" else "layer",
        "mixing": "linear" if draw.random() < 0.1 else "dot",
        "normalizer": "none" if norm == "pre" and draw.random() < 0.3 else "softmax",
        "key_value_heads": 2 if heads == 4 and draw.random() < 0.5 else None,
        "query_key_norm": draw.random() < 0.2,
        "log_length": draw.choice(["none", "none", 9, "current"]),
        "bias": Bias(q=draw.random() < 0.5, k=draw.random() < 0.5, v=draw.random() < 0.5, o=draw.random() < 0.5),
        "scale": draw.choice(["inv_sqrt_d_head", 1.0, "inv_sqrt_d_model"]),
        "query_key": draw.choice(["learned", "learned", "full"]),
        "value_output": draw.choice(["learned", "learned", "full", "identity"]),
    }  # fmt: skip
    gated = draw.random() < 0.3
    layers = []
    for _ in range(draw.choice([1, 2, 3])):
        mlp = MLP(
            d_mlp=5, activation=draw.choice(["relu", "gelu", "gelu_new", "silu"]), gated=gated, bias=draw.random() < 0.7
        )
        layers.append({**shared, "mlp": mlp if draw.random() < 0.6 else None})
    fields: dict[str, Any] = {"positions": positions}
    if positions in ("rotary", "alibi") or (positions == "learned" and draw.random() < 0.4):
        fields["positions_enter"] = "attention"
    if positions == "rotary":
        fields |= {"rotary_pairs": draw.choice(["halves", "adjacent"]), "rotary_dim": draw.choice([None, 2])}
    linear = shared["mixing"] == "linear"
    if positions == "learned" or linear:  # linear mixing has one length
        fields["max_length"] = task.sample(2, task.splits[0], seed=0).tokens.shape[1] if linear else LENGTH
    if norm != "none" and draw.random() < 0.6:
        fields["final_norm"] = f"{kind}_norm"
    fields["decision"] = task.decision or "argmax"
    if draw.random() < 0.2:
        fields |= {"readout": "relu_mlp", "readout_width": 5}
    whole = shared["query_key"] == "full" or shared["value_output"] != "learned"
    fields |= {"d_model": shared["d_head"] if whole else draw.choice([4, 6])}
    try:
        spec = ModelSpec(
            task=task.ref,
            direction="causal" if causal else "bidirectional",
            readout_at=task.readout,
            layers=tuple(Layer(**one) for one in layers),
            dtype=draw.choice(["float32", "float64", "float64"]),
            **fields,
        )
    except SpecError:
        return None
    if spec.problems() or model_problems(spec, task) or (linear and task.name == short_count01.Short.name):
        return None
    shapes = parameter_shapes(spec, task)
    return Subject.of(TaskModel(spec, task, {name: torch.zeros(shape) for name, shape in shapes.items()}))


def stock(draw: random.Random, task: Task) -> Subject:
    """A HookedTransformer as somebody would build it, some with structure that restarts do not know."""
    causal, heads = draw.random() < 0.6, draw.choice([1, 2, 4])
    length = LENGTH
    positions = draw.choice(["standard", "rotary", "alibi" if causal else "standard", "shortformer"])
    only = draw.random() < 0.3
    shared = draw.choice([None, 2, 4]) if heads == 4 else None
    plain = shared is None and positions != "shortformer"  # TransformerLens cannot split the inputs of others
    fields: dict[str, Any] = {
        "n_layers": draw.choice([1, 2, 3]), "d_model": 8, "n_heads": heads, "d_head": 4, "n_ctx": length,
        "d_vocab": task.d_vocab, "d_vocab_out": task.n_out, "attn_only": only,
        "normalization_type": draw.choice([None, "LN", "LNPre", "RMS", "RMSPre"]),
        "attention_dir": "causal" if causal else "bidirectional", "positional_embedding_type": positions,
        "use_attn_scale": draw.random() < 0.8, "dtype": draw.choice([torch.float32, torch.float64, torch.float64]),
        "n_key_value_heads": shared,
        "parallel_attn_mlp": not only and draw.random() < 0.1,
        "output_logits_soft_cap": 3.0 if draw.random() < 0.1 else -1.0,
        "use_hook_mlp_in": draw.random() < 0.2, "use_split_qkv_input": plain and draw.random() < 0.2,
        "use_qk_norm": draw.random() < 0.2 and positions == "standard", "act_fn": "relu",
    }  # fmt: skip
    if positions == "rotary":
        fields |= {"rotary_dim": draw.choice([2, 4]), "rotary_adjacent_pairs": draw.random() < 0.5}
    if not only:
        fields |= {"d_mlp": 6, "act_fn": draw.choice(["relu", "gelu", "gelu_new", "silu"])}
        fields["gated_mlp"] = draw.random() < 0.3
    with quiet_construction():
        return Subject.external(HookedTransformer(config(**fields, device="cpu")), task)


def random_batch(subject: Subject, seed: int, rows: int = 3) -> Batch:
    return subject.task.sample(rows, subject.task.splits[0], seed=seed)


def random_edit(draw: random.Random, subject: Subject, batch: Batch, generator: torch.Generator) -> Edit:
    """A change of any place, at all positions, at some, or at one per row."""
    model: Any = subject.model
    (rows, length), layer = batch.tokens.shape, draw.randrange(model.cfg.n_layers)
    heads = heads_of(subject)
    places: list[Any] = [*parts_of(subject), *(Neuron(one, 1) for one in neuron_layers(subject))]
    places += [f"blocks.{layer}.hook_resid_pre", f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"]
    places += [
        name for name in (f"blocks.{layer}.hook_resid_mid", f"blocks.{layer}.hook_attn_out") if name in model.hook_dict
    ]
    grouped = getattr(model.cfg, "n_key_value_heads", None)
    for head in heads:
        index: int = head.head  # type: ignore[assignment]
        places.append(Site(head.layer, index, "q"))
        if grouped is None or index < grouped:
            places += [Site(head.layer, index, "k"), Site(head.layer, index, "v")]
        places.append(Site(head.layer, index, "pattern"))
    place = draw.choice(places)
    width = model.cfg.d_model if isinstance(place, str) or getattr(place, "head", 0) is None else model.cfg.d_head
    if isinstance(place, Neuron):
        width = 1
    if isinstance(place, Site) and place.what == "pattern":
        width = length
    value: Any = torch.randn(rows, length, width, generator=generator, dtype=torch.float64)
    at: Any = None
    how = draw.choice(["all", "mask", "column", "one", "number"])
    if how == "mask":
        at = torch.rand(rows, length, generator=generator) < 0.4
    if how == "column":
        at = (torch.arange(length) == draw.randrange(length)).expand(rows, -1)
    if how == "one":
        at, value = torch.randint(length, (rows,), generator=generator), value[:, 0]
    if how == "number":
        value = 0.0
    return Edit(place, value, at, add=draw.random() < 0.3)
