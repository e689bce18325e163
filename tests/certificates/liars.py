"""Attacks on what a certificate is about: tasks, models and evidence that say one thing and are another.

    python tests/certificates/liars.py --count 2000 --seed 0

Each draws a small model (exact, or damaged so that it errs) and one lie: a task whose labels are the model's own
answers, something else in the place of a forward pass, numbers that vanish where subnormal ones are flushed to zero, or
a file with labels, rows and names of its own. A lie is refused in a sentence, or has no effect: then certificate and
checker say what is true of the model without it.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import attacks
import torch
import vandals
from attacks import check
from torch import nn
from torch.nn.modules import module as torch_modules

import interp
from interp.architecture.task_model import TaskModel
from interp.errors import InterpError
from interp.tasks import Histogram, MaxOfK, lookup
from interp.tasks.counted import CountBox

SMALL: dict[str, tuple[Callable[[], TaskModel], dict[str, Any]]] = {
    "histogram": (lambda: interp.build("histogram/dot-exact", T=3, L=3), {}),
    "histogram with bos": (lambda: interp.build("histogram/bos-softmax-exact", T=3, L=2), {}),
    "max-of-k": (lambda: interp.build("algorithmic/max-of-k-exact", K=2, v=3), {}),
    "lookup": (
        lambda: interp.build("memorization/theorem1", table=lookup(N=3, M=4, seed=1), d_model=4, dtype="float64"), {},
    ),
    "first": (lambda: interp.build("languages/first"), {"longest": 5}),
    "one": (lambda: interp.build("languages/one"), {"longest": 5}),
    "count01": (lambda: interp.build("count01/minimal"), {"box": CountBox((0, 3), (0, 3), (0, 2))}),
}  # fmt: skip


def drawn(rng: random.Random, names: list[str] | None = None) -> tuple[TaskModel, dict[str, Any]]:
    """A small model, which errs in half of all cases, and the options of its certificate."""
    build, options = SMALL[rng.choice(names or list(SMALL))]
    model, generator = build(), torch.Generator().manual_seed(rng.randrange(10**6))
    if rng.random() < 0.5:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter) * 0.3)
    return model, options


def said_of(model: TaskModel, options: dict[str, Any]) -> tuple[Any, ...]:
    """What a certificate says; ("refused",) if there is none."""
    try:
        found = interp.certify(model, **options)
    except InterpError:
        return ("refused",)
    return found.status, found.accuracy, found.n_errors, found.n_inputs


def judged(model: TaskModel, options: dict[str, Any], honest: tuple[Any, ...]) -> str:
    """ "refused" or "harmless", for what is said of a model after a lie; another certificate is an error."""
    said = said_of(model, options)
    assert said in (("refused",), honest), f"{model.spec.id}: {said}, and without the lie {honest}"
    return "refused" if said == ("refused",) else "harmless"


# ---------------------------------------------------------------- tasks


def own_labels(model: TaskModel, tokens: torch.Tensor) -> interp.Batch:
    """The task's batch with the model's own answers for labels."""
    batch = type(model.task).batch(model.task, tokens)
    return interp.Batch(batch.tokens, batch.lengths, model.predict(tokens).to(batch.labels.dtype))


def lying(model: TaskModel) -> type[interp.Task]:
    """A class of the task's name whose labels are the model's answers."""
    kind = type(model.task)

    def batch(task: interp.Task, tokens: torch.Tensor) -> interp.Batch:
        found = kind.batch(task, tokens)
        return interp.Batch(found.tokens, found.lengths, model.predict(tokens).to(found.labels.dtype))

    def inputs(task: interp.Task, chunk: int = 4096) -> Iterator[interp.Batch]:
        return (task.batch(batch.tokens) for batch in kind.inputs(task, chunk))

    return type(kind.__name__, (kind,), {"batch": batch, "inputs": inputs})


def with_own_table(model: TaskModel) -> None:
    table = model.task.table
    said = torch.nn.functional.one_hot(model.read(torch.tensor(table.contexts)).argmax(-1), table.n_outputs)
    model.task.table = replace(table, conditional=said.double().numpy())


class AlwaysRight:
    """An object that can be called in the place of a method."""

    def __init__(self, model: TaskModel) -> None:
        self.model = model

    def __call__(self, tokens: torch.Tensor) -> interp.Batch:
        return own_labels(self.model, tokens)


TASKS: dict[str, Callable[[TaskModel], Any]] = {
    "batch by a partial": lambda m: setattr(m.task, "batch", partial(own_labels, m)),
    "batch by an object": lambda m: setattr(m.task, "batch", AlwaysRight(m)),
    "batch by a function": lambda m: setattr(m.task, "batch", lambda tokens: own_labels(m, tokens)),
    "counts by a partial": lambda m: setattr(m.task, "label_counts", partial(lambda counts: counts[:, 0] * 0)),
    "classes by a function": lambda m: setattr(m.task, "classes", lambda batch: batch.tokens * 0),
    "answers by a function": lambda m: setattr(m.task, "answers", lambda classes, tokens: classes),
    "another parameter": lambda m: m.task.parameters.update(dict.fromkeys(m.task.parameters, 2)),
    "another class": lambda m: setattr(m.task, "__class__", lying(m)),
    "a task of another class": lambda m: setattr(m, "task", lying(m)(**m.task.parameters)),
    "another vocabulary": lambda m: setattr(m.task, "vocabulary", m.task.vocabulary[::-1]),
    "another readout": lambda m: setattr(m.task, "readout", "last" if m.task.readout != "last" else "all"),
    "another histogram": lambda m: setattr(m, "task", Histogram(T=2, L=2)),
    "another maximum": lambda m: setattr(m, "task", MaxOfK(K=2, v=2)),
    "another table": lambda m: setattr(m, "task", lookup(N=3, M=4, seed=9)),
}


def tasks(rng: random.Random) -> str:
    model, options = drawn(rng)
    honest = said_of(copy.deepcopy(model), options)
    if honest == ("refused",):
        return "nothing to lie about"
    if hasattr(model.task, "table") and rng.random() < 0.4:
        with_own_table(model)
    else:
        TASKS[rng.choice(list(TASKS))](model)
    return judged(model, options, honest)


# ---------------------------------------------------------------- models


class Else:
    """An object that can be called in the place of a forward pass; right where `keeps` says so."""

    def __init__(self, forward: Callable[..., Any], keeps: Callable[[torch.Tensor], bool]) -> None:
        self.forward, self.keeps = forward, keeps

    def __call__(self, *args: Any, **options: Any) -> Any:
        out = self.forward(*args, **options)
        return out if not isinstance(out, torch.Tensor) or self.keeps(out) else out * 0


KEEPS: tuple[Callable[[torch.Tensor], bool], ...] = (
    lambda out: False, lambda out: out.shape[0] != 1, lambda out: out.ndim < 2 or out.shape[1] != 3,
)  # fmt: skip


def models(rng: random.Random) -> str:
    """Something in the place of a function, on one part, on a class or on all models: always refused."""
    model, options = drawn(rng)
    if said_of(copy.deepcopy(model), options) == ("refused",):
        return "nothing to lie about"
    part = rng.choice([module for name, module in model.named_modules() if not isinstance(module, nn.ModuleList)])
    keeps, undo = rng.choice(KEEPS), [lambda: None]
    where = rng.choice(["forward", "_call_impl", "_compiled_call_impl", "predict", "read", "hook", "before", "class",
                        "everywhere", "a class of its own"])  # fmt: skip
    if where == "class":
        kind = rng.choice([kind for kind in type(part).__mro__ if "forward" in vars(kind) and kind is not nn.Module])
        forward = kind.forward
        kind.forward = lambda self, *args, **kwargs: Else(partial(forward, self), keeps)(*args, **kwargs)
        undo.append(lambda: setattr(kind, "forward", forward))
    elif where == "everywhere":
        hook = torch_modules.register_module_forward_hook(lambda module, given, out: Else(lambda: out, keeps)())
        undo.append(hook.remove)
    elif where == "hook":
        part.register_forward_hook(lambda module, given, out: Else(lambda: out, keeps)())
    elif where == "before":
        part.register_forward_pre_hook(lambda module, given: given)
    elif where == "a class of its own":
        part.__class__ = type(type(part).__name__, (type(part),), {})
    else:
        on = model if where in ("predict", "read") else part
        true = getattr(on, where, None) or on.forward
        lie = rng.choice([Else(true, keeps), partial(Else(true, keeps)), lambda *a, **k: Else(true, keeps)(*a, **k)])
        object.__setattr__(on, where, lie)
    try:
        assert said_of(model, options) == ("refused",), f"{model.spec.id}: {where} of {type(part).__name__} was changed"
    finally:
        for back in undo:
            back()
    return "refused"


# ---------------------------------------------------------------- numbers


def numbers(rng: random.Random) -> str:
    """Outputs near the end of a format: what is certified holds where subnormal numbers are flushed to zero."""
    name, dtype = rng.choice(["palindrome", "one", "first", "parity"]), rng.choice(["float32", "float64"])
    variant = rng.choice(["mirror", "binary"]) if name == "palindrome" else None
    size = 10.0 ** -(rng.uniform(28, 44) if dtype == "float32" else rng.uniform(280, 320))
    model = interp.build(f"languages/{name}", variant=variant, dtype=dtype, output_scale=size)
    try:
        table = interp.certify(model, longest=5).tables["lengths"]
    except InterpError:
        return "refused"
    kept = True
    for flushed in (False, torch.set_flush_denormal(True)):
        torch.set_flush_denormal(flushed)
        try:
            for length, status in zip(table["length"], table["status"]):
                batch = model.task.enumerate(int(length))
                right = bool((model.predict(batch.tokens) == batch.labels).all())
                assert right or status != "certified", f"{name}, {size} in {dtype}: {length} symbols"
                kept &= right
        finally:
            torch.set_flush_denormal(False)
    return "harmless" if kept else "refused"


# ---------------------------------------------------------------- files

DOMAINS: dict[str, tuple[int | None, list[tuple[list[int], dict[int, int]]]]] = {
    "histogram": (None, [([*w], {i: w.count(t) - 1 for i, t in enumerate(w)}) for w in product(range(3), repeat=3)]),
    "max-of-k": (3, [([*w, 3], {2: max(w)}) for w in product(range(3), repeat=2)]),
    "first": (2, [([2, *w], {0: w[0]}) for n in (1, 2, 3) for w in product((0, 1), repeat=n)]),
}
"""Where each small task is read, and every input with what is right at each place, by hand."""
NAMES = ["Histogram", "max-of-K", "histograms", "First", "parity", "modular-addition", "my-own"]


def files(rng: random.Random) -> str:
    """A table of inputs whose labels, places, rows, errors or name are the file's own."""
    name = rng.choice(list(DOMAINS))
    model, _ = drawn(rng, [name])
    token, rows = DOMAINS[name]
    said = [answers_of(model, tokens) for tokens, _ in rows]
    right = [{place: [answer] for place, answer in answers.items()} for _, answers in rows]
    lies = [{place: [given[place]] for place in answers} for given, answers in zip(said, right)]
    lie = rng.choice(["labels", "one label", "several", "places", "rows", "errors", "name", "spec"])
    told = copy.deepcopy(lies if lie == "labels" else right)
    row = rng.randrange(len(rows))
    place = rng.choice(list(told[row]))
    if lie == "one label":
        told[row][place] = [1 - min(told[row][place][0], 1)]
    elif lie == "several":
        told[row][place] = sorted({told[row][place][0], (told[row][place][0] + 1) % 2})
    elif lie == "places":
        told = [{p: a for p, a in each.items() if a == other[p]} for each, other in zip(told, lies)]
    kept = [i for i, each in enumerate(told) if each and not (lie == "rows" and each != lies[i])]
    if not kept:
        return "harmless"
    parts = [[rows[i][0], [[p, told[i][p]] for p in sorted(told[i])]] for i in kept]
    errors = [[n, p] for n, i in enumerate(kept) for p in sorted(told[i]) if said[i][p] not in told[i][p]]
    wrong = sum(given[p] != answer for given, (_, answers) in zip(said, rows) for p, answer in answers.items())
    errors = errors[1:] if lie == "errors" else errors
    evidence = attacks.evidence_of(model, "inputs", {"read": token, "errors": errors}, parts, 2.0**-40, "reals")
    before = digest_of(evidence)
    if lie == "name":
        evidence["spec"]["task"] = {"name": rng.choice(NAMES)}
        vandals.mend_name(evidence)
    if lie == "spec":
        evidence["spec"]["layers"][0]["scale"] = rng.choice([0.25, 2.0, 7.0])
        vandals.mend_name(evidence)
    try:
        check.check(evidence)
    except check.Fault as fault:
        if not str(fault).startswith("the claim says"):
            return "refused"
        sentence = str(fault).split("the checked sentence is ")[1].strip("'\"")
    if lie in ("name", "spec"):
        assert digest_of(evidence) != before, "one hash for two models"
    if lie == "spec" or sentence.startswith("agrees with ") or "nothing is said of any other input" in sentence:
        return "weaker" if sentence.startswith("agrees with ") else "harmless"
    claims = f"exactly {wrong} of" if wrong else "inputs, rows without padding; "
    told_truly = sentence.startswith(f"{name}: right ") and claims in sentence
    assert told_truly, f"{name}, {lie}, {wrong} wrong: {sentence}"
    return "harmless"


def answers_of(model: TaskModel, tokens: list[int]) -> list[int]:
    with torch.no_grad():
        out = model(torch.tensor([tokens]))[0]
    return ((out[:, 0] > 0).long() if out.shape[1] == 1 else out.argmax(-1)).tolist()


def digest_of(evidence: dict[str, Any]) -> str:
    try:
        model = check.Model(*(evidence[name] for name in ("spec", "weights", "model", "weights_sha256")), check.REALS)
    except check.Fault:
        return "refused"
    return str(model.sha256)


KINDS = (tasks, models, files, tasks, models, files, numbers)


def run(count: int, seed: int) -> Counter[tuple[str, str]]:
    """So many lies, the kinds in turn; how many were refused, harmless, or told by the weaker sentence."""
    done: Counter[tuple[str, str]] = Counter()
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        try:
            done[kind.__name__, kind(random.Random(seed * 10**6 + number))] += 1
        except AssertionError as error:
            raise AssertionError(f"{kind.__name__}, number {number} of seed {seed}: {error}") from error
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for (kind, verdict), n in sorted(run(given.count, given.seed).items()):
        print(f"{kind:8} {verdict:9} {n}")


if __name__ == "__main__":
    main()
