"""Task models of every kind that a spec can say, with large random weights, and their numbers in plain numpy."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy_forward import forward
from torch import Tensor

from interp.models.architecture.parameters import parameter_shapes
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef
from interp.tasks import make_task

LENGTH = 7
COUNT01 = TaskRef(name="count01")
ALL = Bias(q=True, k=True, v=True, o=True)
SPECS = {
    "count01": ModelSpec(
        task=COUNT01, d_model=6, layers=(Layer(n_heads=3, d_head=2, scale=1.0, norm="pre", bias=Bias(o=True)),)
    ),
    "histogram raw": ModelSpec(
        task=COUNT01, d_model=4, direction="bidirectional",
        layers=(Layer(d_head=4, normalizer="none", value_output="identity", scale="inv_sqrt_d_model"),),
        readout="relu_mlp", readout_width=5, n_out=9,
    ),
    "histogram linear": ModelSpec(
        task=COUNT01, d_model=4, direction="bidirectional",
        layers=(Layer(n_heads=2, d_head=4, mixing="linear", value_output="identity"),),
        max_length=LENGTH, readout="relu_mlp", readout_width=5,
    ),
    "language": ModelSpec(
        task=COUNT01, d_model=6, direction="bidirectional",
        layers=(Layer(n_heads=2, d_head=3, mlp=MLP(d_mlp=5), norm="post", bias=ALL, log_length="current"),) * 2,
        positions="sinusoidal", readout="scalar", decision="sigmoid",
    ),
    "memorization": ModelSpec(
        task=COUNT01,
        d_model=4,
        layers=(Layer(n_heads=3, d_head=4, query_key="full", value_output="full"),),
        positions="learned", positions_enter="attention", max_length=LENGTH, readout_bias=False,
    ),
    "raw causal": ModelSpec(
        task=COUNT01,
        d_model=6,
        layers=(Layer(n_heads=2, d_head=3, normalizer="none", bias=ALL, mlp=MLP(d_mlp=3)),),
        positions="learned",
        max_length=LENGTH + 1,
    ),
    "deep": ModelSpec(
        task=COUNT01,
        d_model=6,
        layers=(
            Layer(n_heads=2, d_head=3, norm="pre"),
            Layer(n_heads=2, d_head=3, norm="pre", mlp=MLP(d_mlp=7, activation="gelu"), log_length=12, norm_eps=0.1),
            Layer(n_heads=2, d_head=3, norm="pre", mlp=MLP(d_mlp=2), bias=Bias(k=True)),
        ),
        positions="sinusoidal",
    ),
    "final norm": ModelSpec(
        task=COUNT01,
        d_model=6,
        layers=(Layer(n_heads=2, d_head=3), Layer(n_heads=2, d_head=3, mlp=MLP(d_mlp=7), norm_eps=0.01)),
        final_norm="layer_norm",
    ),
    "pre and final norm": ModelSpec(
        task=COUNT01,
        d_model=6,
        layers=(Layer(n_heads=2, d_head=3, norm="pre", bias=ALL, mlp=MLP(d_mlp=7)),) * 2,
        positions="learned", max_length=LENGTH + 1, final_norm="layer_norm",
    ),
    "small decoder": ModelSpec(  # what people train today: RMS norms, rotary, grouped, gated, tied
        task=COUNT01,
        d_model=6,
        layers=(
            Layer(
                n_heads=4, d_head=6, norm="pre", norm_kind="rms", norm_eps=0.01, key_value_heads=2,
                query_key_norm=True, mlp=MLP(d_mlp=5, activation="silu", gated=True, bias=False),
            ),
        )
        * 2, positions="rotary", positions_enter="attention", rotary_base=50.0, final_norm="rms_norm",
        tied_embeddings=True, readout_bias=False, n_out=8,
    ),
    "adjacent rotary": ModelSpec(
        task=COUNT01,
        d_model=5,
        layers=(
            Layer(
                n_heads=2, d_head=5, norm="pre", norm_kind="rms", bias=ALL,
                mlp=MLP(d_mlp=3, activation="gelu_new", gated=True), query_key_norm=True,
            ),
        ),
        positions="rotary", positions_enter="attention", rotary_dim=4, rotary_pairs="adjacent",
    ),
    "encoder of now": ModelSpec(
        task=COUNT01, d_model=6, direction="bidirectional",
        layers=(
            Layer(
                n_heads=4, d_head=3, norm="post", norm_kind="rms", key_value_heads=1, bias=ALL,
                mlp=MLP(d_mlp=3, activation="gelu", bias=False),
            ),
        )
        * 2, positions="rotary", positions_enter="attention", rotary_dim=2, readout="scalar", decision="sigmoid",
    ),
    "alibi": ModelSpec(
        task=COUNT01,
        d_model=6,
        layers=(Layer(n_heads=4, d_head=3, norm="pre", mlp=MLP(d_mlp=3, activation="silu")),) * 2,
        positions="alibi", positions_enter="attention", final_norm="layer_norm",
    ),
    "one RMS norm": ModelSpec(  # one layer without positions whose counts would decide, were parts only plain
        task=COUNT01,
        d_model=5,
        layers=(Layer(n_heads=2, d_head=2, norm="pre", norm_kind="rms", query_key_norm=True),),
        tied_embeddings=True,
        n_out=8,
    ),
}  # fmt: skip
EVERY = pytest.mark.parametrize("name", SPECS)


def random_weights(spec: ModelSpec, seed: int = 0) -> dict[str, Tensor]:
    """Every parameter random and large, so that nothing is near its special values: norms, biases, all of them."""
    generator = torch.Generator().manual_seed(seed)
    shapes = parameter_shapes(spec, make_task(spec.task))
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


def make(name: str, **options: Any) -> TaskModel:
    spec = SPECS[name].replace(dtype="float64")
    return TaskModel(spec, tensors=random_weights(spec), **options)


def rows(n: int = 5, length: int = LENGTH, seed: int = 0) -> Tensor:
    """Rows of any tokens but [EOS], which pads."""
    return torch.randint(0, 7, (n, length), generator=torch.Generator().manual_seed(seed))


def reference(name: str, tokens: Tensor) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    found = [forward(SPECS[name], random_weights(SPECS[name]), row.tolist()) for row in tokens]
    return np.stack([logits for logits, _ in found]), {
        key: np.stack([seen[key] for _, seen in found]) for key in found[0][1]
    }
