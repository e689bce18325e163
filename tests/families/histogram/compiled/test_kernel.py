"""The compiled kernels against a plain autograd model on sequences and against torch.optim.Adam.

The samplers against their exact distributions, and against a plain reading of the algorithm.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from histogram_kernel import MODELS, Kernel

from interp.errors import InterpError
from interp.families.histogram.tasks import SAMPLERS, count_distribution

pytestmark = pytest.mark.compiles

SIZES = [  # T, L, d, p, n_out
    (32, 10, 8, 8, 11),
    (7, 5, 3, 2, 5),
    (3, 6, 5, 17, 7),  # fewer tokens than positions
    (4, 1, 2, 3, 2),
    (20, 17, 33, 40, 18),  # more classes and positions than one vector holds
    (1, 4, 1, 1, 4),
]


def plain_logits(
    parameters: dict[str, torch.Tensor], tokens: torch.Tensor, softmax: bool, bos: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The model of the paper, position by position, and the labels."""
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
    return logits, label


def plain_loss(parameters: dict[str, torch.Tensor], tokens: torch.Tensor, softmax: bool, bos: bool) -> torch.Tensor:
    logits, label = plain_logits(parameters, tokens, softmax, bos)
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), label.reshape(-1))


def random_parameters(kernel: Kernel, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    flat = kernel.zeros()
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


def as_torch(kernel: Kernel, flat: np.ndarray, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    views = kernel.views(flat)
    return {name: torch.tensor(np.array(view), dtype=dtype, requires_grad=True) for name, view in views.items()}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradient_equal_autograd(name: str, size: tuple[int, ...], dtype: type) -> None:
    T, L, d, p, n_out = size
    _, softmax, bos = MODELS[name]
    kernel = Kernel(name, T, L, d, p, n_out, dtype)
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
    _, softmax, bos = MODELS[name]
    kernel = Kernel(name, 9, 6, 4, 5, 7)
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
    _, softmax, bos = MODELS[name]
    kernel = Kernel(name, 8, 5, 6, 4, 6, np.float64, frozen, sampler)
    flat = random_parameters(kernel, 3)
    parameters = as_torch(kernel, flat)
    before = kernel.views(flat)["embed.W_E"].copy()
    trained = [value for key, value in parameters.items() if not (frozen and key == "embed.W_E")]
    optimizer = torch.optim.Adam(trained, lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
    m, v = kernel.zeros(), kernel.zeros()
    for step in range(12):
        loss = kernel.train(flat, m, v, step, 100 + step, 1, 1, lr=3e-3)
        optimizer.zero_grad()
        expected = plain_loss(parameters, torch.tensor(kernel.draw(100 + step, 1)), softmax, bos)
        expected.backward()
        optimizer.step()
        assert loss == pytest.approx(expected.item(), rel=1e-9)
    for key, view in kernel.views(flat).items():
        np.testing.assert_allclose(view, parameters[key].detach().numpy(), rtol=1e-8, atol=1e-10)
    assert np.array_equal(kernel.views(flat)["embed.W_E"], before) == frozen


def test_an_epoch_counts_its_steps_and_its_last_batch() -> None:
    kernel = Kernel("dot+sftm", 8, 5, 6, 4, 6)
    flat, m, v = random_parameters(kernel, 4), kernel.zeros(), kernel.zeros()
    kernel.train(flat, m, v, 0, 1, 70, lr=1e-2)
    largest_second_moment = 1 - 0.98**3  # three steps; the gradient of a class that no count has is nearly constant
    unused = kernel.views(v)["unembed.b_out"][0]
    gradient = kernel.views(m)["unembed.b_out"][0] / (1 - 0.9**3)
    assert unused == pytest.approx(largest_second_moment * gradient**2, rel=0.1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_training_is_deterministic_and_learns(dtype: type) -> None:
    kernel = Kernel("dot+sftm", 12, 6, 16, 16, 7, dtype)
    runs = []
    for _ in range(2):
        flat, m, v = random_parameters(kernel, 5), kernel.zeros(), kernel.zeros()
        held_out = kernel.draw(7, 3000)
        before = kernel.accuracy(flat, held_out)
        losses = [kernel.train(flat, m, v, 313 * epoch, 1000 + epoch, 10_000) for epoch in range(4)]
        runs.append((flat, losses))
    assert np.array_equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert losses[-1] < 0.8 * losses[0]
    assert kernel.accuracy(flat, held_out) > before + 0.3
    other = random_parameters(kernel, 5)
    assert kernel.train(other, kernel.zeros(), kernel.zeros(), 0, 2000, 10_000) != losses[0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kernels_in_threads_do_not_disturb_each_other(dtype: type) -> None:
    def train(name: str) -> np.ndarray:
        kernel = Kernel(name, 12, 6, 16, 16, 7, dtype)
        flat, m, v = random_parameters(kernel, 9), kernel.zeros(), kernel.zeros()
        for epoch in range(3):
            kernel.train(flat, m, v, 313 * epoch, epoch, 10_000)
        return flat

    names = list(MODELS)
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(train, names))
    for name, flat in zip(names, together, strict=True):
        assert np.array_equal(flat, train(name))


@pytest.mark.parametrize("name", MODELS)
def test_accuracy_is_that_of_the_plain_model(name: str) -> None:
    _, softmax, bos = MODELS[name]
    for n_out in (6, 7):
        kernel = Kernel(name, 9, 6, 5, 4, n_out)
        flat, tokens = random_parameters(kernel, 6), random_tokens(9, 6, 150)
        logits, label = plain_logits(as_torch(kernel, flat), torch.tensor(tokens), softmax, bos)
        assert kernel.accuracy(flat, tokens) == pytest.approx((logits.argmax(-1) == label).double().mean().item())


def one_sequence(sampler: str, T: int, L: int, generator: np.random.Generator) -> np.ndarray:
    """The published algorithm, one sample at a time."""
    left, unused = L, list(range(T))
    sequence: list[int] = []
    while left:
        k = int(generator.integers(1, left if sampler == "published" and left > 1 else left + 1))
        sequence += [unused.pop(int(generator.integers(len(unused))))] * k
        left -= k
    return generator.permutation(np.array(sequence))


def counts_of(tokens: np.ndarray) -> np.ndarray:
    return np.array([[list(row).count(t) for t in row] for row in tokens])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_drawn_sequences_have_the_exact_distribution(sampler: str) -> None:
    T, L, n = 12, 6, 20_000
    tokens = Kernel("lin", T, L, 2, 2, L, sampler=sampler).draw(1, n)
    plain = np.array([one_sequence(sampler, T, L, np.random.default_rng([2, i])) for i in range(4000)])
    for count, share in count_distribution(sampler, L).items():
        for sample in (tokens, plain):
            # Positions with the same token go together: at most L of them are one draw.
            error = 5 * np.sqrt(float(share) * L / len(sample) / L) + 1e-12
            assert abs((counts_of(sample) == count).mean() - float(share)) <= error
    frequency = np.stack([(tokens == t).mean(0) for t in range(T)])  # every token equally often at every position
    assert np.abs(frequency - 1 / T).max() < 5 * np.sqrt(1 / T / n)
    distinct, distinct_plain = ([len(set(row)) for row in sample] for sample in (tokens[:4000], plain))
    assert np.mean(distinct) == pytest.approx(np.mean(distinct_plain), abs=0.1)


def test_positions_are_shuffled_independently_of_the_counts() -> None:
    tokens = Kernel("lin", 10, 5, 2, 2, 5).draw(3, 20_000)
    equal = np.stack([[(tokens[:, i] == tokens[:, j]).mean() for j in range(5)] for i in range(5)])
    off_diagonal = equal[~np.eye(5, dtype=bool)]
    assert np.ptp(off_diagonal) < 0.025
    assert off_diagonal.mean() == pytest.approx(
        float(sum((c - 1) * share for c, share in count_distribution("published", 5).items())) / 4, abs=0.01
    )


def test_seeds_fix_the_sequences_and_neighbors_are_independent() -> None:
    kernel = Kernel("lin", 32, 10, 2, 2, 11)
    assert np.array_equal(kernel.draw(5, 100), kernel.draw(5, 100))
    assert (kernel.draw(5, 2000) == kernel.draw(6, 2000)).mean() == pytest.approx(1 / 32, abs=0.01)
    assert kernel.draw(2**64 - 1, 1).shape == (1, 10)


def test_smallest_alphabet_serves_every_sequence() -> None:
    tokens = Kernel("dot", 4, 4, 2, 2, 5, sampler="paper").draw(1, 3000)
    assert {len(set(row)) for row in tokens.tolist()} == {1, 2, 3, 4}


def test_unknown_samplers_are_refused() -> None:
    with pytest.raises(InterpError, match="did you mean 'paper'"):
        count_distribution("papper", 3)
