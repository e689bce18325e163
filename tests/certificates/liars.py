"""Attacks on evidence and on numbers that say one thing and are another.

    python tests/certificates/liars.py --count 2000 --seed 0

Each draws a small model (exact, or damaged so that it errs) and one lie: numbers that vanish where subnormal ones are
flushed to zero, or a file with labels, rows and names of its own. A lie is refused in a sentence, or has no effect:
then certificate and checker say what is true of the model without it.
"""

import argparse
import copy
import random
from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import attacks
import torch
import vandals
from attacks import check

import interp

SMALL: dict[str, Callable[[], interp.TaskModel]] = {
    "histogram": lambda: interp.build("histogram/dot-exact", T=3, L=3),
    "max-of-k": lambda: interp.build("algorithmic/max-of-k-exact", K=2, v=3),
    "first": lambda: interp.build("languages/first"),
}


def drawn(rng: random.Random, name: str) -> interp.TaskModel:
    """A small model, which errs in half of all cases."""
    model, generator = SMALL[name](), torch.Generator().manual_seed(rng.randrange(10**6))
    if rng.random() < 0.5:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter) * 0.3)
    return model


# ---------------------------------------------------------------- numbers


def numbers(rng: random.Random) -> str:
    """Outputs near the end of a format: what is certified holds where subnormal numbers are flushed to zero."""
    name, dtype = rng.choice(["palindrome", "one", "first", "parity"]), rng.choice(["float32", "float64"])
    variant = rng.choice(["mirror", "binary"]) if name == "palindrome" else None
    size = 10.0 ** -(rng.uniform(28, 44) if dtype == "float32" else rng.uniform(280, 320))
    model = interp.build(f"languages/{name}", variant=variant, dtype=dtype, output_scale=size)
    try:
        table = interp.certify(model, longest=5).tables["lengths"]
    except interp.InterpError:
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
    model = drawn(rng, name)
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


def answers_of(model: interp.TaskModel, tokens: list[int]) -> list[int]:
    with torch.no_grad():
        out = model(torch.tensor([tokens]))[0]
    return ((out[:, 0] > 0).long() if out.shape[1] == 1 else out.argmax(-1)).tolist()


def digest_of(evidence: dict[str, Any]) -> str:
    try:
        model = check.Model(*(evidence[name] for name in ("spec", "weights", "model", "weights_sha256")), check.REALS)
    except check.Fault:
        return "refused"
    return str(model.sha256)


KINDS = (files, numbers)


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
