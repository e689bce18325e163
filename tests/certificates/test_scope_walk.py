"""Every method, every field that it says it takes into account: what it then says is what the model itself does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from drawn_weights import draw

import interp
from interp.certificates.certificate import ANY, fields, registered_methods
from interp.certificates.probes import compare
from interp.errors import UnsupportedError
from interp.families.count01.tasks import CountBox
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef

RECOGNIZER: dict[str, Any] = {
    "task": TaskRef(name="parity", parameters=(("length", 5),)), "d_model": 4, "direction": "bidirectional",
    "readout": "scalar", "readout_at": "[CLS]", "decision": "sigmoid", "dtype": "float64",
}  # fmt: skip


def as_run_spec() -> ModelSpec:
    task = TaskRef(name="histogram", parameters=(("T", 2), ("L", 3)))
    return ModelSpec(task=task, d_model=2, layers=(Layer(d_head=2),), positions="learned", max_length=3)


SPECS: dict[str, tuple[Callable[[], ModelSpec], dict[str, Any]]] = {
    "count box": (lambda: ModelSpec(task=TaskRef(name="count01"), d_model=4, layers=(Layer(d_head=2),),
        readout_at="=", dtype="float64"), {"box": CountBox((0, 3), (0, 3), (0, 2))}),
    "occurrences of every token": (lambda: histogram_spec("dot", Histogram(T=3, L=3), 3, 4, "float64"), {"seconds": 1,
        "samples": 0}),
    "strings by counts and seen positions": (lambda: ModelSpec(**RECOGNIZER, layers=(Layer(d_head=2,
        mlp=MLP(d_mlp=3)),)), {"longest": 5}),
    "every context of the table": (lambda: interp.load("memorization/lookup").spec.replace(dtype="float64"),
        {"longest": 2}),
    "every multiset": (lambda: ModelSpec(task=TaskRef(name="max-of-k", parameters=(("K", 3), ("v", 4))), d_model=4,
        layers=(Layer(d_head=2),), readout_at="=", dtype="float64"), {}),
    "every product of token sets": (lambda: ModelSpec(task=TaskRef(name="max-of-k", parameters=(("K", 3), ("v", 4))),
        d_model=4, layers=(Layer(d_head=2),), readout_at="=", dtype="float64"), {}),
    "every path of an automaton, by places and states": (lambda: ModelSpec(task=TaskRef(name="addition",
        parameters=(("digits", 5), ("base", 5), ("equals", "0"), ("plus", "0"))), d_model=4, max_length=20,
        positions="learned", layers=(Layer(d_head=2, mlp=MLP(d_mlp=3)),), readout_at="all", dtype="float64"),
        {"seconds": 0}),
    "every string, with a rounding bound": (lambda: ModelSpec(**RECOGNIZER, layers=(Layer(d_head=2, bias=Bias(q=True),
        mlp=MLP(d_mlp=3)),)), {"longest": 4}),
}  # fmt: skip
EXACT = ("proof of PALINDROME",)
"""Methods that take a construction's own weights, field by field, and nothing else."""

AS_RUN = "every input, as run"

OTHERS: dict[str, tuple[object, ...]] = {
    "d_model": (5,), "dtype": ("float32",), "embedding": ("frozen",), "readout_bias": (True, False),
    "direction": ("causal", "bidirectional"), "n_out": (9,),
    "positions": ("none", "parity", "first", "learned", "sinusoidal", "rotary", "alibi"),
    "positions_enter": ("attention",), "max_length": (9,), "readout_at": ("last",), "readout_width": (1, 6),
    "final_norm": ("layer_norm",), "layers.n_heads": (1, 2), "layers.d_head": (3,),
    "layers.scale": (0.3, "inv_sqrt_d_model"), "layers.query_key": ("full",), "layers.value_output": ("identity",),
    "layers.log_length": ("current", 7), "layers.bias.q": (True,), "layers.bias.k": (True,), "layers.bias.v": (True,),
    "layers.bias.o": (True,), "layers.norm": ("pre", "post"), "layers.norm_eps": (0.1,), "layers.mlp.d_mlp": (5,),
    "layers.mlp.activation": ("gelu", "gelu_new", "silu"), "layers.mlp.gated": (True,), "layers.mlp.bias": (False,),
    "layers.norm_kind": ("rms",), "layers.key_value_heads": (1,), "layers.query_key_norm": (True,),
    "tied_embeddings": (True,), "rotary_base": (50.0,), "rotary_dim": (2,), "rotary_pairs": ("adjacent",),
    "layers.mixing": ("linear",), "layers.normalizer": ("none",),
}  # fmt: skip
WITH: dict[object, dict[str, object]] = {
    "full": {"layers.d_head": "d_model"}, "identity": {"layers.d_head": "d_model"}, "linear": {"max_length": 3},
    ("positions", "learned"): {"max_length": 9}, ("layers.norm_eps", 0.1): {"layers.norm": "pre"},
    "layer_norm": {"layers.norm": "pre"}, "attention": {"positions": "learned"}, "rms": {"layers.norm": "pre"},
    "none": {"max_length": None}, "sinusoidal": {"max_length": None},
    "rotary": {"max_length": None, "positions_enter": "attention"},
    "alibi": {"max_length": None, "positions_enter": "attention"}, ("layers.key_value_heads", 1): {"layers.n_heads": 2},
    50.0: {"max_length": None, "positions_enter": "attention", "positions": "rotary"},
    ("rotary_dim", 2): {"max_length": None, "positions_enter": "attention", "positions": "rotary"},
    "adjacent": {"max_length": None, "positions_enter": "attention", "positions": "rotary"},
    ("tied_embeddings", True): {"n_out": None},
}  # fmt: skip
"""What a value needs beside it."""


def changed(spec: ModelSpec, path: str, value: object) -> ModelSpec:
    """A copy with one field set in it (in every layer), and what that needs."""
    more = WITH.get((path, value)) or WITH.get(value) or {}
    for name, own in ((path, value), *((n, spec.d_model if v == "d_model" else v) for n, v in more.items())):
        *outer, last = name.split(".")
        if not outer:
            spec = spec.model_copy(update={last: own})
            continue
        layers = []
        for layer in spec.layers:
            inner = {last: own}
            if len(outer) == 2:
                part = getattr(layer, outer[1])
                inner = {outer[1]: part.model_copy(update=inner)} if part is not None else {}
            layers.append(layer.model_copy(update=inner))
        spec = spec.model_copy(update={"layers": tuple(layers)})
    return spec


def random_model(spec: ModelSpec, name: str = "", seed: int = 0) -> interp.TaskModel:
    model = interp.build(spec.model_copy(update={"origin": None}), seed=seed)
    draw(model, seed, dtype=torch.float64)
    with torch.no_grad():
        if name == "strings by counts and seen positions":  # it asks for a first layer that scores all pairs alike
            model.blocks[0].attn.W_Q.zero_()
    return model


def test_every_method_is_walked() -> None:
    assert {*SPECS, *EXACT, AS_RUN} == set(registered_methods())
    walked = {path for name in SPECS for path in registered_methods()[name].takes}
    assert walked <= {*OTHERS, "task", "origin", "layers", "readout", "decision"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_what_a_method_takes_into_account_is_what_the_model_does(name: str) -> None:
    """Random models with one field after the other changed: no margin that the proof states is another than the run's.

    A value that the method takes and nevertheless refuses (with its neighbors) says why.
    """
    make, options = SPECS[name]
    method, ran = registered_methods()[name], set()
    values = [(path, value) for path, allowed in method.takes.items() for value in OTHERS.get(path, ())
              if allowed is ANY or value in allowed]  # fmt: skip
    for path, value in [("d_model", make().d_model), *values]:
        spec = changed(make(), path, value)
        if spec.problems():
            continue
        model = random_model(spec, name)
        if (reason := method.refusal(model)) is not None:
            assert len(reason) > 10
            continue
        if spec.task.name == "addition" and value == "bidirectional":
            with pytest.raises(UnsupportedError, match="hold the answers"):
                method.run(model, **options)
            continue
        found = method.run(model, **options)
        agreed = compare(model, found.probes)
        assert agreed > 0 or found.status != "certified", (path, value)
        ran.add(path)
    plain = {field.path for field in fields(make())}
    assert len(ran) >= len({path for path, _ in values} & plain) // 2, ran


# ---------------------------------------------------------------- hooks


def built(name: str) -> tuple[interp.TaskModel, dict[str, Any]]:
    """A model that the method of this name takes, right or wrong, and options that keep it short."""
    if name == AS_RUN:
        return random_model(as_run_spec()), {}
    if name in EXACT:
        return interp.build("languages/palindrome"), {"longest": 4}
    return random_model(SPECS[name][0](), name), SPECS[name][1]


@pytest.mark.parametrize("name", list(registered_methods()))
@pytest.mark.parametrize("where", ["hook_embed", "blocks.0.attn.hook_pattern", "blocks.0.hook_resid_post"])
@pytest.mark.thinned(4)
def test_no_method_takes_a_hook(name: str, where: str) -> None:
    model, options = built(name)
    assert registered_methods()[name].refusal(model) is None
    with (
        model.hooks([(where, lambda x, hook: x)]),
        pytest.raises(UnsupportedError, match=f"there is a hook at {where}"),
    ):
        interp.certify(model, **options)
    part = dict(model.named_modules())["unembed"]
    for register in (part.register_forward_hook, part.register_forward_pre_hook):
        handle = register(lambda *arguments: None)
        with pytest.raises(UnsupportedError, match="there is a hook at unembed"):
            interp.certify(model, **options)
        handle.remove()
