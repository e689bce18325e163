"""Vandals of evidence: random damage, of which the checker must accept nothing that is false or not proved.

    python tests/certificates/vandals.py --count 1000 --seed 0
    python tests/certificates/vandals.py --count 30 --evidence out/evidence/evidence

Each vandalism damages the evidence of one small certificate and mends what a clever vandal would mend, such as the
sentence of the claim or a hash. It is refused, or what is accepted is compared with the truth: the same model, and a
claim that the untouched evidence implies. Anything else, a crash of the checker included, is an escape.
"""

import argparse
import copy
import hashlib
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bare_checker import check

sys.path.insert(0, str(Path(__file__).parents[1]))
import small_adders
from edits import written

sys.path.pop(0)

Evidence = dict[str, Any]
JUNK = (None, True, False, 0, 1, -1, 2**70, -(2**70), 1.5, 1e300, "", "0x1p+0", "nan", "inf", "0x1p+5000", "-0x1p-3",
        [], {}, [[]], ["0x1p+0"], {"a": 1}, "\u0660", "0x1.8p+0 ")  # fmt: skip


def small_evidence(folder: Path) -> dict[str, Evidence]:
    """Evidence of every kind that is checked in well below a second."""
    import interp

    models = {
        "count01": (interp.build("count01/minimal"), {}),
        "count01 with errors": (interp.load("count01/paper/seed-0", dtype="float64"), {"box": small_box()}),
        "parity": (interp.build("languages/parity"), {"longest": 5}),
        "first": (interp.build("languages/first"), {"longest": 4}),
        "palindrome": (interp.build("languages/palindrome"), {"longest": 3}),
        "mirror": (interp.build("languages/palindrome", variant="mirror"), {"longest": 3}),
        "parity with errors": (interp.load("languages/parity-learned/seed-0", dtype="float64"), {"longest": 3}),
        "bigram": (interp.load("memorization/bigram/seed-0", dtype="float64"), {}),
        "counterexample": (interp.load("histogram/lin/seed-0", dtype="float64"), {"seconds": 0.1}),
    }
    small = {"task": {"name": "max-of-k", "parameters": {"K": 3, "v": 4}}, "d_model": 4, "layers": [{"d_head": 4}],
             "readout_at": "=", "dtype": "float64"}  # fmt: skip
    models["max-of-k"] = (interp.build(interp.ModelSpec.from_dict(small), seed=1), {})
    for kind in ("dot", "dot-softmax", "bos", "bos-softmax", "lin", "lin-softmax"):
        models[kind] = (interp.build(f"histogram/{kind}-exact", T=5, L=3), {})
    found = {}
    for name, (model, options) in models.items():
        found[name] = written(interp.certify(model, **options), folder)
    for base, digits in ((2, 1), (3, 2)):  # so few inputs would be run one by one
        found[f"adder of {digits} digits"] = written(by_places(small_adders.adder(base, digits)), folder)
    return found


def by_places(model: Any) -> Any:
    """The certificate of an adder by places and states."""
    from interp.certificates.certificate import MadeBy, registered_methods
    from interp.certificates.evidence import write_evidence

    method = registered_methods()["every path of an automaton, by places and states"]
    return replace(method.run(model), source=MadeBy(model, method.name, {}, write_evidence))


def small_box() -> Any:
    from interp.tasks.counted import CountBox

    return CountBox((150, 160), (148, 160), (0, 30))


# ---------------------------------------------------------------- vandalisms: each damages evidence in place


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into the JSON value."""
    found = [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        found += places(item, (*path, key))
    return found


def owner_of(evidence: Evidence, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        evidence = evidence[key]
    return evidence


def get(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def weight(evidence: Evidence, rng: random.Random) -> None:
    """A weight is another number, or its neighbor; in half the cases the hash is mended."""
    values = rng.choice(list(evidence["weights"].values()))["values"]
    at = rng.randrange(len(values))
    old = float.fromhex(values[at])
    changed = [-old, 0.0, old + 2.0**-30, old * (1 + 2.0**-20), old * 2, rng.gauss(0, 1)]
    values[at] = float(rng.choice([number for number in changed if number != old])).hex()
    if rng.random() < 0.5:
        mend_hash(evidence)


def part_left_out(evidence: Evidence, rng: random.Random) -> None:
    path, chosen = a_list(evidence, rng)
    at = rng.randrange(len(chosen))
    put(evidence, path, chosen[:at] + chosen[at + 1 :])
    mend(evidence, rng)


def part_twice(evidence: Evidence, rng: random.Random) -> None:
    path, chosen = a_list(evidence, rng)
    at, again = rng.randrange(len(chosen) + 1), rng.randrange(len(chosen))
    put(evidence, path, chosen[:at] + chosen[again : again + 1] + chosen[at:])
    mend(evidence, rng)


def parts_swapped(evidence: Evidence, rng: random.Random) -> None:
    path, chosen = a_list(evidence, rng)
    i, j = rng.randrange(len(chosen)), rng.randrange(len(chosen))
    items = list(chosen)
    items[i], items[j] = items[j], items[i]
    put(evidence, path, "".join(items) if isinstance(chosen, str) else items)
    mend(evidence, rng)


def a_list(evidence: Evidence, rng: random.Random) -> tuple[tuple[Any, ...], Any]:
    """Something among the parts or in the domain that has an order: a list, or a text of cuts."""
    paths = [p for p in places(evidence) if p[:1] == ("parts",) or p[:2] == ("claim", "domain")]
    paths = [p for p in paths if isinstance(get(evidence, p), list | str) and get(evidence, p)]
    path = rng.choice(paths) if paths else ("spec", "layers")
    return path, get(evidence, path)


def put(evidence: Evidence, path: tuple[Any, ...], value: Any) -> None:
    owner_of(evidence, path)[path[-1]] = value


def number_moved(evidence: Evidence, rng: random.Random) -> None:
    """A whole number anywhere but among the weights: a cut, an axis, a size, a box, an answer, an output."""
    paths = [p for p in places(evidence) if p and p[0] != "weights" and type(get(evidence, p)) is int]
    path = rng.choice(paths)
    owner_of(evidence, path)[path[-1]] += rng.choice([-2, -1, 1, 2, 100])
    mend(evidence, rng)


def error_hidden(evidence: Evidence, rng: random.Random) -> None:
    """Wrong inputs become right ones, in the claim and among the parts."""
    evidence["claim"]["domain"]["errors"] = []
    evidence["claim"]["sentence"] = re.sub(" but exactly.*?(?=; over)", "", evidence["claim"]["sentence"])
    if rng.random() < 0.5:
        evidence["parts"] = [None if type(part) is int else part for part in evidence["parts"]]


def margin_enlarged(evidence: Evidence, rng: random.Random) -> None:
    """The claim, and its sentence."""
    factor = rng.choice([1.01, 2, 10, 1e6])
    claim = evidence["claim"]
    old, new = claim["margin"], (float.fromhex(claim["margin"]) * factor).hex()
    claim["margin"], claim["sentence"] = new, claim["sentence"].replace(f"by {old}", f"by {new}")


def claim_enlarged(evidence: Evidence, rng: random.Random) -> None:
    """More inputs, no errors, another format, another kind, other words."""
    claim, domain = evidence["claim"], evidence["claim"]["domain"]
    choice = rng.randrange(5)
    if choice == 0:
        claim["format"] = rng.choice(["reals", "float32", "float64"])
        claim["sentence"] = re.sub("at least.*", "at least" + as_run(claim["format"]), claim["sentence"])
    elif choice == 1:
        claim["kind"] = rng.choice(["counts", "sequences", "strings", "inputs", "maxima", "places"])
    elif choice == 2:
        claim["sentence"] = re.sub(r"\d+", lambda m: str(int(m[0]) + 1), claim["sentence"], count=rng.randrange(1, 6))
    elif domain.get("errors"):
        del domain["errors"][rng.randrange(len(domain["errors"]))]
        if rng.random() < 0.5:
            claim["sentence"] = re.sub(" but exactly.*?(?=; over)", "", claim["sentence"])
    else:
        number_moved(evidence, rng)
    mend(evidence, rng)


def spec_changed(evidence: Evidence, rng: random.Random) -> None:
    """A field of the spec that changes what the weights compute, its name mended."""
    spec, layer = evidence["spec"], rng.choice(evidence["spec"]["layers"])
    change = rng.choice([
        (layer, "scale", 0.5), (layer, "norm", "post"), (layer, "log_length", "current"), (layer, "n_heads", 2),
        (layer, "normalizer", "none"), (layer, "mixing", "linear"), (spec, "direction", "bidirectional"),
        (spec, "direction", "causal"), (spec, "positions", "learned"), (spec, "readout_at", "last"), (spec, "n_out", 9),
        (spec, "decision", "indicator"), (spec, "final_norm", "layer_norm"), (layer, "norm_eps", 1.0), (layer, "x", 1),
        (spec["task"], "name", "one"), (spec, "tolerance", 0.1), (layer, "norm", "pre"), (spec, "embedding", 3),
        (layer, "norm_kind", "rms"), (layer, "query_key_norm", True), (spec, "final_norm", "rms_norm"),
        (spec, "positions", "rotary"), (spec, "max_length", 3), (spec, "tied_embeddings", True),
        (spec["task"], "parameters", {**spec["task"].get("parameters", {}), "order": "most"}),
    ])  # fmt: skip
    change[0][change[1]] = change[2]
    if rng.random() < 0.8:
        mend_name(evidence)


def as_run(number_format: str) -> str:
    return "" if number_format == "reals" else f", and the answers are the same as run in {number_format}"


def junk(evidence: Evidence, rng: random.Random) -> None:
    """Something of another type or size anywhere, an extra key or a missing one."""
    path = rng.choice(places(evidence)[1:])
    owner, what = owner_of(evidence, path), rng.randrange(6)
    if what == 0:
        del owner[path[-1]]
    elif what == 1 and isinstance(owner, dict):
        owner["more"] = rng.choice(JUNK)
    else:
        owner[path[-1]] = copy.deepcopy(rng.choice(JUNK))
    if rng.random() < 0.3:
        mend(evidence, rng)


def mend(evidence: Evidence, rng: random.Random) -> None:
    """Most vandals take over the sentence that the checker itself says was checked."""
    if rng.random() < 0.3:
        return
    for _ in range(3):
        try:
            check.check(copy.deepcopy(evidence))
            return
        except check.Fault as fault:
            if found := re.search("the checked sentence is (['\"])(.*)\\1$", str(fault)):
                evidence["claim"]["sentence"] = found[2]
            elif found := re.search(r"(?:errors|wrong answers) are \[(.*)\], not as claimed", str(fault)):
                evidence["claim"]["domain"]["errors"] = [list(pair) for pair in eval(f"[{found[1]}]")]
            elif "and its spec" in str(fault):
                mend_name(evidence)
            else:
                return


def mend_hash(evidence: Evidence) -> None:
    shapes = {name: item["shape"] for name, item in evidence["weights"].items()}
    values = {name: [float.fromhex(x) for x in item["values"]] for name, item in evidence["weights"].items()}
    evidence["weights_sha256"] = check.weights_sha256(shapes, values)


def mend_name(evidence: Evidence) -> None:
    spec = evidence["spec"]
    try:
        text = json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()
        heads = spec["layers"][0].get("n_heads", 1)
        name = f"{spec['task']['name']}-d{spec['d_model']}-h{heads}-{hashlib.sha256(text).hexdigest()[:10]}"
        evidence["model"] = name
    except (KeyError, TypeError, IndexError, AttributeError):
        return


DAMAGE: tuple[Callable[[Evidence, random.Random], None], ...] = (
    weight, part_left_out, part_twice, parts_swapped, number_moved, margin_enlarged, claim_enlarged, error_hidden,
    spec_changed, junk,
)  # fmt: skip


def torn(text: str, rng: random.Random) -> str:
    """Damage to the text: a key twice, deep nesting, numbers that are none, a file that ends early or goes on."""
    key = rng.choice(["claim", "weights", "parts", "format", "margin", "kind", "spec"])
    return rng.choice([
        text[: rng.randrange(len(text))], text + "{}", "[" * 100_000 + text, text.replace("{", "{" * 2, 1),
        text.replace(f'"{key}":', f'"{key}":1,"{key}":', 1), text.replace('"margin":', '"margin":NaN,"margin":', 1),
        re.sub(r'"shape":\[\d', '"shape":[1e999', text, count=1), re.sub('"0x[^"]*"', "Infinity", text, count=1),
        re.sub('"0x[^"]*"', '"0x1p+99999"', text, count=1), re.sub('"0x[^"]*"', "9" * 5000, text, count=1),
        '{"evidence":' + "[" * 3000 + "]" * 3000 + "}", text.replace("0x1", "0x7", 1), "\ufeff" + text, "null", "[]",
    ])  # fmt: skip


# ---------------------------------------------------------------- verdicts


def attempt(evidence: Evidence, rng: random.Random, folder: Path) -> tuple[str, str, str]:
    """One vandalism: its name, "refused", "harmless" or "ESCAPED", and what the checker says."""
    if rng.random() < 0.1:
        path, name = folder / "torn.json", "torn"
        text = torn(json.dumps(evidence, separators=(",", ":")), rng)
        path.write_text(text)
        try:
            changed = check.read(str(path))
        except check.Fault as fault:
            return name, "refused", str(fault)
    else:
        damage = rng.choice(DAMAGE)
        changed, name = copy.deepcopy(evidence), damage.__name__
        damage(changed, rng)
        changed = json.loads(json.dumps(changed))
    try:
        said = check.check(changed)[1]
    except check.Fault as fault:
        return name, "refused", str(fault)
    except Exception as error:
        return name, "ESCAPED", f"crash: {error!r}"
    if changed["weights_sha256"] != evidence["weights_sha256"] or changed["model"] != evidence["model"]:
        decided = changed["model"] == evidence["model"] and changed["claim"]["kind"] in ("strings", "maxima", "places")
        if decided and not is_true(changed):
            return name, "ESCAPED", said
        return name, "refused", "another model's name or hash than was asked for"
    table, asked = (re.findall("table of SHA-256 [0-9a-f]*", text) for text in (said, evidence["claim"]["sentence"]))
    if table != asked:
        return name, "refused", "another table's hash than was asked for"
    if said == evidence["claim"]["sentence"] or implied(said, changed, evidence):
        return name, "harmless", said
    return name, "ESCAPED", said


def implied(said: str, changed: Evidence, evidence: Evidence) -> bool:
    """Is the changed claim weaker than the old one, or does the toolkit find it true as well?"""
    old, new = evidence["claim"], changed["claim"]
    weaker = float.fromhex(new["margin"]) <= float.fromhex(old["margin"])
    same = old["sentence"].split("; over the reals by 0x")[0] == said.split("; over the reals by 0x")[0]
    another = new["format"] not in ("reals", old["format"])  # only of maxima is it known here whether that is true
    exact = new["kind"] in ("maxima", "places")  # the margin may be larger than was claimed
    if (another and new["kind"] != "maxima") or not said.endswith("least" + as_run(new["format"])):
        return False
    return (same and weaker and not another) or ((weaker or exact) and is_true(changed))


def is_true(evidence: Evidence) -> bool:
    """The toolkit's own answer on another domain of the same model: all its errors, and no margin below the claim's."""
    import torch

    import interp
    from interp.models.subject import Subject
    from interp.tasks.counted import CountBox

    claim, spec = evidence["claim"], interp.ModelSpec.from_dict(evidence["spec"])
    tensors = {n: torch.tensor([float.fromhex(x) for x in w["values"]], dtype=torch.float64).reshape(w["shape"])
               for n, w in evidence["weights"].items()}  # fmt: skip
    model, domain = interp.TaskModel(spec, tensors=tensors, dtype="float64"), claim["domain"]
    if claim["kind"] == "counts":
        found = interp.certify(model, box=CountBox(*(tuple(side) for side in domain["box"])))
        errors = found.tables["errors"]
        wrong = [[int(d), int(n)] for d, n in zip(errors["difference"], errors["errors"]) if n]
        clear = bool(wrong) or found.worst_margin >= float.fromhex(claim["margin"])
        return wrong == domain["errors"] and clear
    if claim["kind"] == "maxima":
        numbers = torch.cartesian_prod(*[torch.arange(model.task.base)] * model.task.terms)
        out, largest = model(model.task.of_numbers(numbers).tokens)[:, -1].detach(), numbers.amax(1)
        gap = out.gather(1, largest[:, None])[:, 0] - out.scatter(1, largest[:, None], -torch.inf).amax(1)
        wrong = [[m, n] for m in range(model.task.base) if (n := int((gap[largest == m] <= 0).sum()))]
        if claim["format"] != "reals" and not same_as_run(model, out.argmax(-1), numbers, claim["format"]):
            return False
        return wrong == domain["errors"] and float(gap.abs().min()) >= float.fromhex(claim["margin"]) * (1 - 1e-9)
    if claim["kind"] == "strings":
        wrong, least = [], float("inf")
        for length in range(1, domain["longest"] + 1):
            batch = model.task.enumerate(length)
            margin = torch.where(batch.labels, 1, -1) * model(batch.tokens)[:, 0, 0].detach()
            wrong += [[length, n]] if (n := int((margin <= 0).sum())) else []
            least = min(least, float(margin.abs().min()))
        return wrong == domain["errors"] and least >= float.fromhex(claim["margin"]) * (1 - 1e-9)
    if claim["kind"] == "places":
        least = float(small_adders.truth(Subject.of(model)).margins.min())
        return least >= float.fromhex(claim["margin"]) * (1 - 1e-9)
    return False


def same_as_run(model: Any, answers: Any, numbers: Any, number_format: str) -> bool:
    """Does the model give these answers in a number format, in batches of every size?"""
    import torch

    run, rows = copy.deepcopy(model).to(getattr(torch, number_format)), model.task.of_numbers(numbers).tokens
    with torch.no_grad():
        return all(
            torch.cat([run(part)[:, -1] for part in rows.split(size)]).argmax(-1).equal(answers)
            for size in range(1, len(rows) + 1)
        )


def run(
    count: int, seed: int, folder: Path, evidence: dict[str, Evidence] | None = None, seconds: float = float("inf")
) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Verdicts by (damage, verdict), and what escaped; the evidences take turns. seconds: CPU time after which none is
    begun."""
    rng, last = random.Random(seed), time.process_time() + seconds
    if evidence is None:
        evidence = small_evidence(folder)
        for name, item in evidence.items():
            assert check.check(copy.deepcopy(item))[1] == item["claim"]["sentence"], name
    verdicts: Counter[tuple[str, str]] = Counter()
    escaped = []
    for number in range(count):
        if time.process_time() > last:
            break
        of = list(evidence)[number % len(evidence)]
        name, verdict, said = attempt(evidence[of], rng, folder)
        verdicts[name, verdict] += 1
        if verdict == "ESCAPED":
            escaped.append(f"{number}: {of}, {name}: {said[:300]}")
    return verdicts, escaped


def each_file(folder: Path, count: int, seed: int, seconds: float) -> bool:
    """Lines of FOLDER/vandals.csv, for each file that it does not hold as it is; did any vandalism escape?"""
    table = folder / "vandals.csv"
    if not table.exists():
        table.write_text("file,sha256,seed,tried,refused,harmless,escaped\n")
    done = {tuple(line.split(",")[1:3]) for line in table.read_text().splitlines()}
    found = False
    for path in sorted(folder.glob("*.json.gz")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if (digest, str(seed)) in done:
            continue
        evidence = check.read(str(path))
        with tempfile.TemporaryDirectory() as other:
            own = int(digest[:12], 16) + seed  # other damage for each file
            verdicts, escaped = run(count, own, Path(other), {path.name: evidence}, seconds)
        sums = [sum(n for (_, said), n in verdicts.items() if said == verdict) for verdict in ("refused", "harmless")]
        line = ",".join(map(str, [path.name, digest, seed, verdicts.total(), *sums, len(escaped)]))
        with table.open("a") as file:
            file.write(line + "\n")
        print(line, *escaped, sep="\n", flush=True)
        found |= bool(escaped)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evidence", type=Path, help="a folder: so many vandalisms of every file in it")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time for each file of --evidence")
    given = parser.parse_args()
    if given.evidence is not None:
        raise SystemExit(each_file(given.evidence, given.count, given.seed, given.seconds))
    with tempfile.TemporaryDirectory() as folder:
        verdicts, escaped = run(given.count, given.seed, Path(folder))
    for (name, verdict), n in sorted(verdicts.items()):
        print(f"{name:18} {verdict:9} {n}")
    print(f"{given.count} vandalisms, {len(escaped)} escaped")
    print("\n".join(escaped))
    raise SystemExit(bool(escaped))


if __name__ == "__main__":
    main()
