"""Patching, ablation, circuits, explanations and reports, against TransformerLens where it has the same, in one run.

    python analyses/benchmarks/patching.py             the table of ratios, then how they grow, then kinds of models
    python analyses/benchmarks/patching.py --daily     circuits, explanations, a proof and reports alone
    python analyses/benchmarks/patching.py --smoke     sizes with which there is little to do

CPU seconds of one thread, A and B by turns, the median of the rounds; peak memory is what the process grows by during
the call, each in a process of its own. Numbers are asserted to be equal. Prints ratios, TransformerLens over interp:
above 1, interp takes less. TransformerLens has functions for activation patching; path patching and ablation are
written with its hooks here, and path patching runs only some of the edges, of which the time for all is estimated.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig, patching

import interp
from interp.models.subject import Subject
from interp.tasks import IGNORED, Batch, Task
from interp.tasks.pairs import Pairs

VOCABULARY = 12
EXPLAINED = (
    "count01/paper", "histogram/dot-softmax", "algorithmic/brackets", "algorithmic/induction", "languages/first-learned"
)  # fmt: skip


class First(Task):
    """The first token is the answer, read at the last position."""

    name, readout, vocabulary, n_out = "first-of-twelve", "last", tuple(map(str, range(VOCABULARY))), VOCABULARY

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        return self.batch(torch.randint(VOCABULARY, (n, 12), generator=torch.Generator().manual_seed(seed)))

    def batch(self, tokens: torch.Tensor) -> Batch:
        return Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), tokens[:, 0])

    def classes(self, batch: Batch) -> torch.Tensor:
        found = torch.full_like(batch.tokens, IGNORED)
        found[:, -1] = batch.labels
        return found

    def answers(self, classes: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return classes


@dataclass(frozen=True)
class Sizes:
    """A stock model and its pairs."""

    layers: int = 4
    heads: int = 8
    length: int = 12
    rows: int = 200
    d_model: int = 128
    mlp: bool = True
    norm: str | None = "LN"
    positions: str = "standard"
    direction: str = "causal"

    def made(self) -> tuple[HookedTransformer, Subject, Pairs]:
        """Build the model with random weights, and pairs that differ in the first token."""
        d_head, more = self.d_model // self.heads, {"rotary_dim": self.d_model // self.heads}
        fields: dict[str, Any] = {"d_mlp": 4 * self.d_model, "act_fn": "gelu"} if self.mlp else {"attn_only": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = HookedTransformer(HookedTransformerConfig(
                n_layers=self.layers, d_model=self.d_model, n_heads=self.heads, d_head=d_head, n_ctx=self.length,
                d_vocab=VOCABULARY, normalization_type=self.norm, attention_dir=self.direction, seed=0, device="cpu",
                positional_embedding_type=self.positions, **fields, **(more if self.positions == "rotary" else {}),
            )).eval()  # fmt: skip
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.02)
        task = First()
        clean = torch.randint(VOCABULARY, (self.rows, self.length), generator=draw)
        corrupted = clean.clone()
        corrupted[:, 0] = (corrupted[:, 0] + 1) % VOCABULARY
        return model, Subject(model, task), Pairs(task.batch(clean), task.batch(corrupted))


def theirs(what: str, model: HookedTransformer, pairs: Pairs) -> torch.Tensor:
    """What TransformerLens's functions give: the logit difference for each site."""
    clean, corrupted, metric = pairs.clean.tokens, pairs.corrupted.tokens, partial(lean, pairs=pairs)
    with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
        _, cache = model.run_with_cache(clean)
        if what == "heads by position":
            found = patching.get_act_patch_attn_head_out_by_pos(model, corrupted, cache, metric)
            return found.transpose(1, 2).flatten()
        sites = [patching.get_act_patch_resid_pre(model, corrupted, cache, metric).flatten()]
        sites.append(patching.get_act_patch_attn_head_out_all_pos(model, corrupted, cache, metric).flatten())
        for layer in range(0 if model.cfg.attn_only else model.cfg.n_layers):
            put = (f"blocks.{layer}.hook_mlp_out", lambda value, hook: cache[hook.name])
            sites.append(metric(model.run_with_hooks(corrupted, fwd_hooks=[put]))[None])
        return torch.cat(sites)


def path(model: HookedTransformer, pairs: Pairs, sender: str, receiver: str) -> float:
    """The logit difference with a sender's clean output in one receiver's input, by two corrupted runs with hooks.

    Senders and receivers: "embedding", "head 0.3", "MLP 1"; a receiver may be "output".
    """
    clean, corrupted = pairs.clean.tokens, pairs.corrupted.tokens

    def layer_and_head(name: str) -> tuple[int, int | None]:
        layer, _, head = name.split()[1].partition(".")
        return int(layer), int(head) if head else None

    def written(tokens: torch.Tensor) -> torch.Tensor:
        if sender == "embedding":
            return model.run_with_cache(tokens, names_filter="blocks.0.hook_resid_pre")[1]["blocks.0.hook_resid_pre"]
        layer, head = layer_and_head(sender)
        name = f"blocks.{layer}." + ("hook_mlp_out" if head is None else "attn.hook_z")
        value = model.run_with_cache(tokens, names_filter=name)[1][name]
        return value if head is None else value[:, :, head] @ model.blocks[layer].attn.W_O[head]

    change, kept = written(clean) - written(corrupted), dict[str, torch.Tensor]()
    add = lambda value, hook: value + change  # noqa: E731
    if receiver == "output":
        logits = model.run_with_hooks(corrupted, fwd_hooks=[(f"blocks.{model.cfg.n_layers - 1}.hook_resid_post", add)])
        return float(lean(logits, pairs))
    layer, head = layer_and_head(receiver)
    read, made = ("hook_resid_mid", "hook_mlp_out") if head is None else ("hook_resid_pre", "attn.hook_z")
    keep = lambda value, hook: kept.update({"made": value})  # noqa: E731
    hooks = [(f"blocks.{layer}.{read}", add), (f"blocks.{layer}.{made}", keep)]
    model.run_with_hooks(corrupted, fwd_hooks=hooks, stop_at_layer=layer + 1)

    def put(value: torch.Tensor, hook: Any) -> torch.Tensor:
        if head is None:
            return kept["made"]
        value = value.clone()
        value[:, :, head] = kept["made"][:, :, head]
        return value

    return float(lean(model.run_with_hooks(corrupted, fwd_hooks=[(f"blocks.{layer}.{made}", put)]), pairs))


def lean(logits: torch.Tensor, pairs: Pairs) -> torch.Tensor:
    """The mean logit difference of the clean and the corrupted answer at the last position."""
    last = logits[:, -1]
    return (last.gather(1, pairs.clean.tokens[:, :1]) - last.gather(1, pairs.corrupted.tokens[:, :1])).mean()


def paths(model: HookedTransformer, subject: Subject, pairs: Pairs, some: int) -> tuple[float, float]:
    """CPU seconds of all edges by hand, estimated from some of them, and with interp; their numbers are equal."""
    ours, found = seconds(lambda: interp.path_patching(subject, pairs).to_frame())
    step = max(1, len(found) // some)
    rows = found.iloc[step // 2 :: step]
    with torch.no_grad():
        ends = [float(lean(model(one.tokens), pairs)) for one in (pairs.corrupted, pairs.clean)]
        theirs, right = seconds(lambda: [path(model, pairs, row.sender, row.receiver) for row in rows.itertuples()])
    for row, wanted in zip(rows.itertuples(), right):
        assert abs(row.recovered * (ends[1] - ends[0]) + ends[0] - wanted) < 1e-4 * max(1.0, abs(wanted)), row
    return theirs * len(found) / len(rows), ours


def ablations(model: HookedTransformer, subject: Subject, pairs: Pairs) -> tuple[float, float]:
    """CPU seconds of replacing each head by its mean at each position, with hooks and with interp."""
    tokens, n = pairs.clean.tokens, model.cfg.n_heads

    def by_hand() -> list[float]:
        found = [(model(tokens)[:, -1].argmax(-1) == tokens[:, 0]).double().mean()]
        _, cache = model.run_with_cache(pairs.corrupted.tokens, names_filter=lambda name: name.endswith("hook_z"))
        for layer in range(model.cfg.n_layers):
            mean = cache["z", layer].mean(0)
            for head in range(n):

                def put(value: torch.Tensor, hook: Any, mean: torch.Tensor = mean, head: int = head) -> torch.Tensor:
                    value[:, :, head] = mean[:, head]
                    return value

                logits = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", put)])
                found.append((logits[:, -1].argmax(-1) == tokens[:, 0]).double().mean())
        return [float(one) for one in found]

    with torch.no_grad():
        theirs, right = seconds(by_hand)
    ours, found = seconds(lambda: interp.ablate_heads(subject, inputs=pairs.clean, reference=pairs.corrupted))
    off = max(abs(a - b) for a, b in zip(right, found["accuracy"], strict=True))
    assert off < 1.5 / len(tokens), f"accuracies differ by {off}"  # a tie may be decided by rounding
    return theirs, ours


def starting(code: str) -> float:
    """CPU seconds of a new Python process that runs some code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def ours(what: str, subject: Subject, pairs: Pairs) -> torch.Tensor:
    """The same numbers from interp, which also patches the stream after the last layer."""
    by_position = what == "heads by position"
    kinds = ["head"] if by_position else ["stream", "head", "MLP"]
    found = interp.activation_patching(subject, pairs, by_position=by_position, sites=kinds)
    table = found.at_positions if by_position else found.table[found.table["layer"] < subject.model.cfg.n_layers]
    table = table.assign(order=table["kind"].map({"stream": 0, "head": 1, "MLP": 2})).sort_values(
        "order", kind="stable"
    )
    return found.corrupted + torch.tensor(table["recovered"].to_numpy()) * (found.clean - found.corrupted)


def daily() -> dict[str, Callable[[], Any]]:
    """What a researcher asks of a shipped model; imports count for what needs them first."""

    def certified() -> Callable[[], Any]:
        found = interp.explain(interp.load("count01/paper"))
        return lambda: found.certify()

    circuit, proof = interp.load("algorithmic/induction"), certified()
    calls: dict[str, Callable[[], Any]] = {
        "find_circuit of induction": lambda: interp.find_circuit(circuit),
        "find_circuit of induction, edges": lambda: interp.find_circuit(circuit, edges=True),
        "certify what explain finds, count01": proof,
    }
    for name in EXPLAINED:
        calls[f"explain {name}"] = partial(interp.explain, interp.load(name))
    for name in ("count01/paper", "count01/minimal", "algorithmic/brackets"):
        calls[f"analyze {name}"] = partial(interp.analyze, interp.load(name))
    return calls


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def time_daily() -> None:
    for name, call in daily().items():
        print(f"{name:35} {seconds(call)[0]:8.2f}", flush=True)


def compared(what: str, sizes: Sizes, rounds: int) -> tuple[float, float, float]:
    """Return the median CPU seconds of both, and their largest difference in units of the logit difference."""
    model, subject, pairs = sizes.made()
    few = pairs[0 : min(10, len(pairs))]
    theirs(what, model, few), ours(what, subject, few)  # what the first call sets up is not counted
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        a, right = seconds(lambda: theirs(what, model, pairs))
        b, found = seconds(lambda: ours(what, subject, pairs))
        times.append((a, b))
    off = float((right - found).abs().max())
    assert off < 1e-4 * max(1.0, float(right.abs().max())), f"{what}: numbers differ by {off}"
    return statistics.median(a for a, _ in times), statistics.median(b for _, b in times), off


def memory(what: str, sizes: Sizes) -> float:
    """Return the peak memory of TransformerLens's call over that of interp's, each in a process of its own."""
    peaks = []
    for who in ("theirs", "ours"):
        command = [sys.executable, str(Path(__file__).resolve()), "--peak", who, what, json.dumps(sizes.__dict__)]
        peaks.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]))
    return peaks[1] / peaks[0]


def peak_memory() -> int:
    """Return the peak memory of this process in bytes, as Linux counts it since the process began."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def peak(who: str, what: str, sizes: Sizes) -> float:
    """Return by how many bytes the process grows during one call."""
    model, subject, pairs = sizes.made()
    few = pairs[0 : min(10, len(pairs))]
    theirs(what, model, few), ours(what, subject, few)
    before = peak_memory()
    theirs(what, model, pairs) if who == "theirs" else ours(what, subject, pairs)
    return max(1.0, float(peak_memory() - before))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small sizes")
    parser.add_argument("--daily", action="store_true", help="circuits, explanations, a proof and reports alone")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="ignored: everything is printed")
    parser.add_argument("--peak", nargs=3, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        who, what, sizes = arguments.peak
        print(peak(who, what, Sizes(**json.loads(sizes))))
        return
    if arguments.daily:
        time_daily()
        return
    base, rounds = Sizes(), arguments.rounds
    if arguments.smoke:
        base, rounds = Sizes(layers=2, heads=2, length=4, rows=6, d_model=8), 1
    sites = ("stream, heads, MLPs", "heads by position")
    print("what, TransformerLens (s), interp (s), ratio, largest difference, memory of interp / of TransformerLens")
    for what in sites:
        a, b, off = compared(what, base, rounds)
        part = "" if arguments.smoke else f"  {memory(what, base):.2f}"
        print(f"{what:22} {a:8.2f} {b:8.2f} {a / b:6.1f} {off:.1e}{part}", flush=True)
    model, subject, pairs = base.made()
    a, b = paths(model, subject, pairs, 4 if arguments.smoke else 24)
    print(f"{'path patching':22} {a:8.2f} {b:8.2f} {a / b:6.1f}", flush=True)
    a, b = ablations(model, subject, pairs)
    print(f"{'ablate_heads':22} {a:8.2f} {b:8.2f} {a / b:6.1f}", flush=True)
    if not arguments.smoke:
        time_daily()
        a, b = starting("import transformer_lens"), starting("import interp; interp.load('count01/paper')")
        print(f"{'import, then load':22} {a:8.2f} {b:8.2f} {a / b:6.2f}", flush=True)
    small = replace(base, rows=6) if arguments.smoke else replace(base, rows=25)
    print("\nstream, heads, MLPs as one size doubles: exponents of the CPU time, TransformerLens and interp")
    a, b, _ = compared(sites[0], small, rounds)
    for name in ("layers", "heads", "length", "rows"):
        a2, b2, _ = compared(sites[0], replace(small, **{name: 2 * getattr(small, name)}), rounds)
        print(f"{name:22} {math.log2(a2 / a):8.2f} {math.log2(b2 / b):8.2f}   ratio {a2 / b2:.1f}", flush=True)
    print("\nstream, heads, MLPs of other kinds of models: ratio, largest difference")
    for kind in (
        {"direction": "bidirectional"}, {"mlp": False}, {"norm": None}, {"norm": "RMS"}, {"positions": "rotary"},
    ):  # fmt: skip
        a, b, off = compared(sites[0], replace(small, **kind), rounds)
        print(f"{next(iter(kind.items()))!s:30} {a / b:6.1f} {off:.1e}", flush=True)


if __name__ == "__main__":
    main()
