"""The compiled kernels against a plain autograd model on sequences and against torch.optim.Adam."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from interp.errors import InterpError
from interp.training.compiled import HistogramKernel

MODELS = {  # name: mixing, softmax, bos
    "lin": ("lin", False, False),
    "lin+sftm": ("lin", True, False),
    "dot": ("dot", False, False),
    "dot+sftm": ("dot", True, False),
    "bos": ("dot", False, True),
    "bos+sftm": ("dot", True, True),
}
SIZES = [  # T, L, d, p, n_out
    (32, 10, 8, 8, 11),
    (7, 5, 3, 2, 5),
    (3, 6, 5, 17, 7),  # fewer tokens than positions
    (4, 1, 2, 3, 2),
    (20, 17, 33, 40, 18),  # more classes and positions than one vector holds
    (1, 4, 1, 1, 4),
]


def plain_loss(parameters: dict[str, torch.Tensor], tokens: torch.Tensor, softmax: bool, bos: bool) -> torch.Tensor:
    """The model of the paper, position by position."""
    embedding = parameters["embed.W_E"]
    n, L = tokens.shape
    if bos:
        tokens = torch.cat([torch.full((n, 1), len(embedding) - 1), tokens], 1)
    x = embedding[tokens]
    if "blocks.0.attn.W_Q" in parameters:
        query, key = x @ parameters["blocks.0.attn.W_Q"][0], x @ parameters["blocks.0.attn.W_K"][0]
        pattern = query @ key.transpose(1, 2) / x.shape[-1] ** 0.5
    else:
        pattern = parameters["blocks.0.attn.W_mix"].expand(n, L, L)
    if softmax:
        pattern = pattern.softmax(-1)
    x = x + pattern @ x
    logits = torch.relu(x @ parameters["unembed.W_in"] + parameters["unembed.b_in"]) @ parameters["unembed.W_out"]
    logits = logits + parameters["unembed.b_out"]
    label = (tokens[:, :, None] == tokens[:, None, :]).sum(-1) - (1 if logits.shape[-1] == L else 0)
    if bos:
        logits, label = logits[:, 1:], label[:, 1:]
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), label.reshape(-1))


def random_parameters(kernel: HistogramKernel, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    flat = kernel.init_flat()
    for name, view in kernel.views(flat).items():
        view[...] = generator.standard_normal(view.shape) * (1.0 if name == "embed.W_E" else view.shape[-1] ** -0.5)
    return flat


def random_tokens(T: int, L: int, n: int = 13) -> np.ndarray:
    """Uniform sequences, one of a single token and one with as few repetitions as there can be."""
    tokens = np.random.default_rng(T + L).integers(0, T, (n, L))
    tokens[0] = T - 1
    tokens[1] = np.arange(L) % T
    return tokens


def gradient_of(value: torch.Tensor) -> np.ndarray:
    assert value.grad is not None
    return value.grad.numpy()


def as_torch(kernel: HistogramKernel, flat: np.ndarray, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    views = kernel.views(flat)
    return {name: torch.tensor(np.array(view), dtype=dtype, requires_grad=True) for name, view in views.items()}


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradient_equal_autograd(name: str, size: tuple[int, ...], dtype: type) -> None:
    T, L, d, p, n_out = size
    mixing, softmax, bos = MODELS[name]
    kernel = HistogramKernel(mixing, softmax, bos, T, L, d, p, n_out, dtype)
    flat, tokens = random_parameters(kernel, 1), random_tokens(T, L)
    parameters = as_torch(kernel, flat)
    expected = plain_loss(parameters, torch.tensor(tokens), softmax, bos)
    expected.backward()
    loss, grad = kernel.loss_and_grad(flat, tokens)
    tolerance = 1e-10 if dtype is np.float64 else 1e-5
    assert loss == pytest.approx(expected.item(), rel=tolerance)
    views = kernel.views(grad)
    assert views.keys() == parameters.keys()
    for key, value in parameters.items():
        wanted = gradient_of(value)
        assert np.abs(views[key] - wanted).max() <= tolerance * max(np.abs(wanted).max(), 1e-3), key
    named = sum(float((view.astype(np.float64) ** 2).sum()) for view in views.values())
    assert float((grad.astype(np.float64) ** 2).sum()) == pytest.approx(named)  # nothing in the padding


@pytest.mark.parametrize("name", MODELS)
def test_extreme_scores_stay_finite(name: str) -> None:
    mixing, softmax, bos = MODELS[name]
    kernel = HistogramKernel(mixing, softmax, bos, 9, 6, 4, 5, 7, np.float64)
    flat, tokens = random_parameters(kernel, 2) * 12, random_tokens(9, 6)
    parameters = as_torch(kernel, flat)
    expected = plain_loss(parameters, torch.tensor(tokens), softmax, bos)
    expected.backward()
    loss, grad = kernel.loss_and_grad(flat, tokens)
    assert loss > 100
    assert loss == pytest.approx(expected.item(), rel=1e-10)
    for key, view in kernel.views(grad).items():
        np.testing.assert_allclose(view, gradient_of(parameters[key]), rtol=1e-8, atol=1e-10 * np.abs(grad).max())


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    ("name", "sampler"), [("dot+sftm", "published"), ("bos", "paper"), ("lin", "published"), ("lin+sftm", "paper")]
)
def test_an_epoch_is_adam_on_the_drawn_sequences(name: str, sampler: str, frozen: bool) -> None:
    """Epochs of one sequence: the same that `draw` gives for the same seed."""
    mixing, softmax, bos = MODELS[name]
    kernel = HistogramKernel(mixing, softmax, bos, 8, 5, 6, 4, 6, np.float64, frozen, sampler)
    flat = random_parameters(kernel, 3)
    parameters = as_torch(kernel, flat)
    before = kernel.views(flat)["embed.W_E"].copy()
    trained = [value for key, value in parameters.items() if not (frozen and key == "embed.W_E")]
    optimizer = torch.optim.Adam(trained, lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
    m, v = kernel.init_flat(), kernel.init_flat()
    for step in range(12):
        loss = kernel.run_epoch(flat, m, v, step, 100 + step, n_samples=1, batch=4, lr=3e-3)
        optimizer.zero_grad()
        expected = plain_loss(parameters, torch.tensor(kernel.draw(100 + step, 1)), softmax, bos)
        expected.backward()
        optimizer.step()
        assert loss == pytest.approx(expected.item(), rel=1e-9)
    for key, view in kernel.views(flat).items():
        np.testing.assert_allclose(view, parameters[key].detach().numpy(), rtol=1e-8, atol=1e-10)
    assert np.array_equal(kernel.views(flat)["embed.W_E"], before) == frozen


def test_an_epoch_counts_its_steps_and_its_last_batch() -> None:
    kernel = HistogramKernel("dot", True, False, 8, 5, 6, 4, 6, np.float64)
    flat, m, v = random_parameters(kernel, 4), kernel.init_flat(), kernel.init_flat()
    kernel.run_epoch(flat, m, v, 0, 1, n_samples=70, batch=32, lr=1e-2)
    largest_second_moment = 1 - 0.98**3  # three steps; the gradient of a class that no count has is nearly constant
    unused = kernel.views(v)["unembed.b_out"][0]
    gradient = kernel.views(m)["unembed.b_out"][0] / (1 - 0.9**3)
    assert unused == pytest.approx(largest_second_moment * gradient**2, rel=0.1)


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_training_is_deterministic_and_learns(dtype: type) -> None:
    kernel = HistogramKernel("dot", True, False, 12, 6, 16, 16, 7, dtype)
    runs = []
    for _ in range(2):
        flat, m, v = random_parameters(kernel, 5), kernel.init_flat(), kernel.init_flat()
        before = kernel.evaluate(flat, seed=7)
        losses = [kernel.run_epoch(flat, m, v, 313 * epoch, 1000 + epoch) for epoch in range(4)]
        runs.append((flat, losses))
    assert np.array_equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert losses[-1] < 0.8 * losses[0]
    assert kernel.evaluate(flat, seed=7) > before + 0.3
    other = random_parameters(kernel, 5)
    assert kernel.run_epoch(other, kernel.init_flat(), kernel.init_flat(), 0, 2000) != losses[0]


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_kernels_in_threads_do_not_disturb_each_other(dtype: type) -> None:
    def train(name: str) -> np.ndarray:
        kernel = HistogramKernel(*MODELS[name], 12, 6, 16, 16, 7, dtype)
        flat, m, v = random_parameters(kernel, 9), kernel.init_flat(), kernel.init_flat()
        for epoch in range(3):
            kernel.run_epoch(flat, m, v, 313 * epoch, epoch)
        return flat

    names = list(MODELS)
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(train, names))
    for name, flat in zip(names, together, strict=True):
        assert np.array_equal(flat, train(name))


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_accuracy_equal_the_plain_model(name: str) -> None:
    mixing, softmax, bos = MODELS[name]
    for n_out in (6, 7):
        kernel = HistogramKernel(mixing, softmax, bos, 9, 6, 5, 4, n_out, np.float64)
        flat, tokens = random_parameters(kernel, 6), random_tokens(9, 6, 150)
        logits = kernel.logits(flat, tokens)
        assert logits.shape == (150, 6, n_out)
        counts = (tokens[:, :, None] == tokens[:, None, :]).sum(-1)
        labels = torch.tensor(counts - (n_out == 6)).reshape(-1)
        loss = torch.nn.functional.cross_entropy(torch.tensor(logits).reshape(-1, n_out), labels)
        assert loss.item() == pytest.approx(
            plain_loss(as_torch(kernel, flat), torch.tensor(tokens), softmax, bos).item(), rel=1e-12
        )
        right = torch.tensor(logits).reshape(-1, n_out).argmax(-1) == labels
        assert kernel.evaluate(flat, tokens) == pytest.approx(right.double().mean().item())


def test_a_batch_larger_than_the_work_space() -> None:
    kernel = HistogramKernel("lin", True, False, 8, 5, 6, 4, 6, np.float64)
    flat, m, v = random_parameters(kernel, 8), kernel.init_flat(), kernel.init_flat()
    assert np.isfinite(kernel.run_epoch(flat, m, v, 0, 1, n_samples=500, batch=300))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mixing": "dott"}, "did you mean 'dot'"),
        ({"mixing": "lin", "bos": True}, "no BOS"),
        ({"d": 0}, "d = 0"),
        ({"n_out": 5}, "10 or 11 classes"),
        ({"dtype": np.float16}, "float16"),
        ({"sampler": "uniform"}, "unknown sampler"),
    ],
)
def test_bad_sizes_are_refused(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "mixing": "dot",
        "softmax": True,
        "bos": False,
        "T": 32,
        "L": 10,
        "d": 8,
        "p": 8,
        "n_out": 11,
    }
    with pytest.raises(InterpError, match=message):
        HistogramKernel(**(arguments | change))  # type: ignore[arg-type]


def test_bad_calls_are_refused() -> None:
    kernel = HistogramKernel("dot", True, False, 3, 4, 2, 2, 5)
    flat = kernel.init_flat()
    with pytest.raises(InterpError, match="T must be at least L"):
        kernel.run_epoch(flat, kernel.init_flat(), kernel.init_flat(), 0, 1)
    with pytest.raises(InterpError, match=r"alphabet is 0\.\.2"):
        kernel.logits(flat, np.full((1, 4), 3))
    with pytest.raises(InterpError, match=r"expected \(batch, 4\)"):
        kernel.logits(flat, np.zeros((1, 5)))
    with pytest.raises(InterpError, match="use init_flat"):
        kernel.logits(flat.astype(np.float64), np.zeros((1, 4)))
    with pytest.raises(InterpError, match="either tokens or a seed"):
        kernel.evaluate(flat)
