"""Metrics, directions, sites and attribution of activation patching, and split path patching, against plain hooks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from standins import NAMES, padding_hooks, read_of, standin
from torch import Tensor

from interp.errors import InterpError
from interp.measures.edges import path_patching
from interp.measures.minimal_pairs import Compared, make_pairs
from interp.measures.patching import Patched, activation_patching
from interp.tasks import Batch


def run(name: str, batch: Batch, hooks: list[tuple[str, Callable[..., Any]]] | None = None) -> Tensor:
    """Outputs at all reads, row by row."""
    model = standin(name).model
    with torch.no_grad():
        logits = model.run_with_hooks(batch.tokens, fwd_hooks=[*padding_hooks(model, batch), *(hooks or [])])
    return read_of(name, logits).flatten(0, -2).double()


def by_hand(name: str, found: Patched, how: Callable[[Tensor], Tensor], source: Batch, base: Batch) -> None:
    """Compare each part's row with a hook that swaps the part's value. how: the metric's mean over the reads."""
    model, values = standin(name).model, dict[str, Tensor]()
    keep = (lambda hook: "attn.hook_" in hook, lambda x, hook: values.update({hook.name: x.detach()}))
    model.run_with_hooks(source.tokens, fwd_hooks=[*padding_hooks(model, source), keep])
    for row in found.parts.itertuples():
        what = "z" if row.kind == "head" else row.kind
        hook = f"blocks.{row.layer}.attn.hook_{what}"

        def swap(x: Tensor, hook: Any, row: Any = row) -> Tensor:
            x = x.clone()
            at = (slice(None), row.head) if row.kind == "pattern" else (slice(None), slice(None), row.head)
            x[at] = values[hook.name][at]
            return x

        after = float(how(run(name, base, [(hook, swap)])))
        assert row.recovered == pytest.approx((after - found.corrupted) / (found.clean - found.corrupted), abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("direction", ["denoise", "noise"])
@pytest.mark.thinned(2)
def test_heads_and_what_they_make_in_both_directions(name, direction) -> None:
    subject = standin(name)
    pairs = make_pairs(subject, 8, seed=2)
    kinds = ("head", "q", "k", "v", "pattern")
    found = activation_patching(subject, pairs, sites=kinds, direction=direction)
    right, wrong = pairs.clean.labels.flatten(), pairs.corrupted.labels.flatten()
    differ, rows = right != wrong, torch.arange(len(right))

    def lean(out: Tensor) -> Tensor:
        return (out[rows, right] - out[rows, wrong])[differ].mean()

    assert list(dict.fromkeys(found["kind"])) == ["head", "q", "k", "v", "pattern"]
    source, base = (pairs.clean, pairs.corrupted) if direction == "denoise" else (pairs.corrupted, pairs.clean)
    by_hand(name, found, lean, source, base)


@pytest.mark.parametrize("metric", ["loss", "probability", "KL"])
def test_metrics_by_hand(metric) -> None:
    subject = standin("recall")
    pairs = make_pairs(subject, 8, seed=2)
    found = activation_patching(subject, pairs, sites=["head"], metric=metric)
    right = pairs.clean.labels
    clean = run("recall", pairs.clean).log_softmax(-1)

    def how(out: Tensor) -> Tensor:
        log = out.log_softmax(-1)
        if metric == "KL":
            return (clean.exp() * (clean - log)).sum(-1).mean()
        mine = log.gather(1, right[:, None])
        return -mine.mean() if metric == "loss" else mine.exp().mean()

    assert found.corrupted == pytest.approx(float(how(run("recall", pairs.corrupted))), rel=1e-5)
    assert found.metric == metric
    assert metric in found.title
    by_hand("recall", found, how, pairs.clean, pairs.corrupted)


def test_a_metric_of_ones_own() -> None:
    subject = standin("recall")
    pairs = make_pairs(subject, 8, seed=2)

    def own(logits: Tensor, where: Compared) -> Tensor:
        rows = torch.arange(len(logits))
        return logits[rows, where.clean] - logits[rows, where.corrupted]

    usual = activation_patching(subject, pairs)["recovered"]
    assert activation_patching(subject, pairs, metric=own)["recovered"].to_numpy() == pytest.approx(usual.to_numpy())
    with pytest.raises(InterpError, match="one number for each of the 8 reads"):
        activation_patching(subject, pairs, metric=lambda logits, where: logits)
    for options, sentence in (
        ({"metric": "loses"}, "unknown metric"),
        ({"direction": "up"}, "unknown direction"),
        ({"sites": ["heads"]}, "unknown site"),
        ({"method": "fast"}, "unknown method"),
    ):
        with pytest.raises(InterpError, match=sentence):
            activation_patching(subject, pairs, **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_attribution_is_the_slope_of_the_exact_effect(name, direction) -> None:
    """Of the last stream into a linear readout, the estimate is exact; elsewhere it has the error that it says."""
    subject = standin(name)
    pairs = make_pairs(subject, 8, seed=2)
    kinds = ("stream", "head", "MLP", "q", "pattern")
    both = activation_patching(subject, pairs, sites=kinds, direction=direction, method="both").to_frame()
    alone = activation_patching(subject, pairs, sites=kinds, direction=direction, method="attribution").to_frame()
    assert alone["attributed"].to_numpy() == pytest.approx(both["attributed"].to_numpy())
    assert not {"recovered", "error", "flipped", "off"} & {*alone}
    assert both["off"].to_numpy() == pytest.approx((both["attributed"] - both["recovered"]).to_numpy())
    last = both[(both["kind"] == "stream") & (both["layer"] == subject.model.cfg.n_layers)]
    if subject.model.cfg.normalization_type is None:
        assert last["off"].abs().max() < 1e-4
    else:
        assert both["off"].abs().max() > 1e-3


def test_attribution_against_finite_differences() -> None:
    subject = standin("recall")
    pairs = make_pairs(subject, 8, seed=2)
    found = activation_patching(subject, pairs, sites=["head"], method="attribution")
    right, wrong, rows = pairs.clean.labels, pairs.corrupted.labels, torch.arange(8)
    values: dict[str, Tensor] = {}
    hook = "blocks.0.attn.hook_z"
    run("recall", pairs.clean, [(hook, lambda x, hook: values.update({hook.name: x}))])

    def lean(step: float) -> float:
        def push(x: Tensor, hook: Any) -> Tensor:
            x = x.clone()
            x[:, :, 1] += step * (values[hook.name][:, :, 1] - x[:, :, 1])
            return x

        out = run("recall", pairs.corrupted, [(hook, push)])
        return float((out[rows, right] - out[rows, wrong]).mean())

    slope = (lean(1e-2) - lean(-1e-2)) / 2e-2
    row = found.parts.query("site == 'head 0.1'").iloc[0]
    assert row["attributed"] == pytest.approx(slope / (found.clean - found.corrupted), rel=2e-2)
    assert found.title.startswith("Attribution patching, an estimate")
    assert found.plot("parts").layout.yaxis.title.text == "attributed"


@pytest.mark.parametrize("name", NAMES)
def test_edges_into_queries_keys_and_values(name) -> None:
    """Only the query, key or value of a head reads the sender's clean output, and the head's change goes on."""
    subject = standin(name)
    model = subject.model
    pairs = make_pairs(subject, 6, seed=1)
    found = path_patching(subject, pairs, split=True)
    assert set(found["receiver"]) >= {"q of head 0.0", "k of head 0.0", "v of head 0.0", "output"}
    right, wrong = pairs.clean.labels.flatten(), pairs.corrupted.labels.flatten()
    differ, rows = right != wrong, torch.arange(len(right))

    def lean(out: Tensor) -> float:
        return float((out[rows, right] - out[rows, wrong])[differ].mean())

    before, after = (lean(run(name, batch)) for batch in (pairs.clean, pairs.corrupted))
    clean, _ = model.embed(pairs.clean.tokens) + model.pos_embed(pairs.clean.tokens), None
    stream = clean.detach()  # the embedding is the whole stream before layer 0
    block = model.blocks[0]
    x = block.ln1(stream) if model.cfg.normalization_type else stream
    for which in "qkv":

        def put(value: Tensor, hook: Any, which: str = which) -> Tensor:
            value = value.clone()
            weight, bias = (getattr(block.attn, f"{kind}_{which.upper()}")[0] for kind in "Wb")
            value[:, :, 0] = x @ weight + bias
            return value

        out = lean(run(name, pairs.corrupted, [(f"blocks.0.attn.hook_{which}", put)]))
        row = found.to_frame().query(f"sender == 'embedding' and receiver == '{which} of head 0.0'").iloc[0]
        assert row["recovered"] == pytest.approx((out - after) / (before - after), abs=2e-4)
