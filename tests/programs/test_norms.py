"""Lengths by which norms divide, against torch's own norms."""

from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import interp
from interp.measures.runs import reads_of
from interp.models.spec import MLP, Layer, ModelSpec
from interp.models.subject import Subject
from interp.programs.read_sums import ACCURACY, gain_and_shift, length, norm_before, undivided
from interp.programs.running import Running
from interp.programs.steps import Sums, codes
from interp.tasks import make_task


def drawn(n: int, d: int) -> tuple[dict[str, Tensor], Tensor]:
    """Two variables at n points, and a vector of d numbers that is a sum over them."""
    draw = torch.Generator().manual_seed(0)
    made = {name: codes(torch.randint(size, (1, n), generator=draw), size)[0] for name, size in (("a", 3), ("b", 5))}
    vectors = {name: torch.randn(one.shape[1], d, generator=draw).double() for name, one in made.items()}
    return made, sum((one @ vectors[name] for name, one in made.items()), torch.zeros(n, d).double())


def value(step: Sums, made: dict[str, Tensor]) -> Tensor:
    """The length of a step's numbers at each point."""
    return step.sums({name: one[None] for name, one in {**made, "token": made["a"]}.items()})[0].norm(dim=1)


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_the_length_is_that_by_which_the_norm_divides(kind: type[nn.Module]) -> None:
    made, stream = drawn(200, 16)
    norm = kind(16, eps=1e-5)
    divided = undivided(norm, stream)
    step = length("length", made, divided, 1e-5)
    torch.testing.assert_close(divided / value(step, made)[:, None], norm(stream.float()).double(), rtol=0, atol=1e-4)


def test_a_length_has_only_as_many_sums_as_it_needs() -> None:
    """Sums that add little are one constant, and turned weights have as many zeros as a symmetric matrix repeats."""
    made, divided = drawn(200, 16)
    exact = length("length", made, divided, 0.0)
    n = len(exact.bias) - 1
    assert n <= 7  # 1 + 2 + 4 directions, of 16
    assert exact.constants <= 9 * (n + 1) - n * (n + 1) // 2
    noise = 1e-3 * torch.randn(200, 16, generator=torch.Generator().manual_seed(1)).double()
    flat = torch.cat([divided[:, :2], noise[:, 2:]], 1)
    few = length("length", made, flat, 0.0)
    assert len(few.bias) == 3
    error = value(few, made) / flat.square().mean(1).sqrt() - 1
    assert float(error.square().mean().sqrt()) <= ACCURACY


@pytest.mark.parametrize("mlp", [None, MLP(d_mlp=12, activation="relu")])
@pytest.mark.parametrize("norm", ["pre", "post", "none"])
@pytest.mark.thinned(3)
def test_norms_before_parts(norm: Literal["pre", "post", "none"], mlp: MLP | None) -> None:
    """What a part reads is the stream through the norm, whether that is its own or follows an earlier part."""
    layer = Layer(n_heads=2, d_head=4, mlp=mlp, norm=norm)
    model = interp.build(ModelSpec(task=make_task("count01").ref, d_model=8, layers=(layer, layer), readout_at="="))
    subject, batch = Subject.of(model), model.task.sample(5, seed=0)
    running = Running(subject, batch, reads_of(subject, batch))
    _, seen = model.run_with_cache(batch.tokens)
    for part in running.parts:
        name, own = ("resid_pre", "ln1") if part.head is not None else ("resid_mid", "ln2")
        wanted = seen[f"blocks.{part.layer}.{f'{own}.hook_normalized' if norm == 'pre' else f'hook_{name}'}"]
        found, stream = norm_before(running, part)
        assert (found is None) == (norm == "none" or (norm == "post" and part.layer == 0 and part.head is not None))
        torch.testing.assert_close(stream if found is None else found(stream), wanted, rtol=0, atol=1e-5)


def test_gain_and_shift_are_one_and_none_where_a_norm_has_none() -> None:
    norm = nn.LayerNorm(4, elementwise_affine=False)
    gain, shift = gain_and_shift(norm, 4)
    assert gain.tolist() == [1.0] * 4
    assert shift.tolist() == [0.0] * 4
    norm.w, norm.b = nn.Parameter(torch.full((4,), 2.0)), nn.Parameter(torch.full((4,), 3.0))
    gain, shift = gain_and_shift(norm, 4)
    assert gain.tolist() == [2.0] * 4
    assert shift.tolist() == [3.0] * 4
