"""The checker's proofs by places and states, against the model itself, and evidence that must be refused."""

import copy
import gzip
import importlib
import json
import zlib
from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import attacks
import pytest
import torch
import vandals
from small_adders import adder

import interp
from interp.certificates.certificate import MadeBy
from interp.certificates.evidence import write_evidence
from interp.certificates.places import certify_places
from interp.families.algorithmic import Addition

check = attacks.check
places, forms = (importlib.import_module(f"bare_check.{name}") for name in ("places", "forms"))
METHOD = "every path of an automaton, by places and states"
SHAPES = {
    "learned, GELU": {
        "mlp": {"d_mlp": 5, "activation": "gelu"}, "positions": "learned", "bias": {"q": True, "v": True},
    },
    "rotary, gated SiLU": {"mlp": {"d_mlp": 5, "activation": "silu", "gated": True, "bias": False}},
    "adjacent pairs, ReLU": {"mlp": {"d_mlp": 4}, "rotary_pairs": "adjacent", "rotary_base": 3.0, "rotary_dim": 2},
    "query-key norm, tied": {"mlp": None, "query_key_norm": True, "tied_embeddings": True, "scale": 1.5},
    "no norm but the last": {"mlp": {"d_mlp": 3, "activation": "silu"}, "norm": "none", "positions": "none"},
}  # fmt: skip

CHECKSUMS = (1462398931, 773821156, 3217883176, 2069249687, 3891248709)


def drawn(fields: dict, task: Addition, scale: float = 1.0) -> interp.TaskModel:
    """A random decoder of this shape, in float64."""
    of_layer = ("mlp", "query_key_norm", "scale", "norm", "bias")
    layer = {"n_heads": 2, "d_head": 4, "norm": "pre", "norm_kind": "rms"} | {
        k: fields[k] for k in of_layer if k in fields
    }
    if layer["norm"] == "none":
        del layer["norm_kind"]
    positions = fields.get("positions", "rotary")
    spec = {"task": {"name": "addition", "parameters": dict(task.ref.parameters)}, "d_model": 6, "layers": [layer],
            "positions": positions, "final_norm": "rms_norm", "readout_bias": False, "dtype": "float64",
            "positions_enter": "attention" if positions == "rotary" else "residual"}  # fmt: skip
    spec |= {"max_length": task.length} if positions == "learned" else {}
    spec |= {name: value for name, value in fields.items() if name not in (*of_layer, "positions")}
    model = interp.TaskModel(interp.ModelSpec.from_dict(spec), seed=0, dtype="float64")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale
            parameter.copy_((1024 * values).round() / 1024 + (1 if name.endswith(".w") else 0))
    return model


@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_of_single_inputs_and_of_all_at_once(shape: str) -> None:
    """A row's bound is its margin; that of all rows with a token and an answer is below each.

    Each is the same to the last unit on every machine: only whole numbers make it."""
    task = Addition(base=2, digits=2, plus="0", equals="0")
    model = drawn(SHAPES[shape], task)
    evidence = attacks.evidence_of(model, "places", {}, [], 1e-9, "reals")
    mine = check.Model(*(evidence[k] for k in ("spec", "weights", "model", "weights_sha256")), check.REALS)
    rows, eye = places.addition(mine), [float(i == j).hex() for i in range(4) for j in range(4)]
    batch = next(task.inputs())
    out, bounds = model(batch.tokens).detach(), []
    for at, (after, answer) in rows.reads.items():
        for token in (0, 1):
            here = batch.tokens[:, at] == token
            if not here.any():
                continue
            sight = places.PlaceTerms(mine.decoder, rows, at, token, [eye] * 2)
            least = {}
            for row, logits in zip(batch.tokens[here].tolist(), out[here, at]):
                states, tokens, given = {0: 0}, {}, sight.nothing
                for place, position in enumerate(rows.order):
                    (step,) = [s for s in rows.steps[place] if s[:2] == (states[place], row[position])]
                    states[place + 1], tokens[place] = step[2], step[1]
                    if position <= at:
                        given = list(map(sum, zip(given, sight.costs[place, step[1]])))
                right = answer(states[after])
                margin = float(logits[right] - max(x for j, x in enumerate(logits) if j != right))
                bounds.append(sight.bound(states, tokens, given, right))
                assert bounds[-1] / forms.UNIT == pytest.approx(margin, rel=1e-3, abs=2e-3)
                assert bounds[-1] / forms.UNIT <= margin + 1e-12
                least[states[after]] = min(margin, least.get(states[after], margin))
            for state, margin in least.items():
                bounds.append(bound := sight.bound({0: 0, after: state}, {}, sight.nothing, answer(state)))
                assert bound is None or bound / forms.UNIT <= margin + 1e-12
    assert zlib.crc32(repr(bounds).encode()) == CHECKSUMS[list(SHAPES).index(shape)]


def test_the_order_of_cuts_does_not_move_a_single_input() -> None:
    """A place that is cut last, between two that were cut, is counted once."""
    task = Addition(base=2, digits=2, plus="00", equals="0")
    model = drawn(SHAPES["no norm but the last"], task, scale=0.3)
    evidence = attacks.evidence_of(model, "places", {}, [], 1e-9, "reals")
    mine = check.Model(*(evidence[k] for k in ("spec", "weights", "model", "weights_sha256")), check.REALS)
    rows, eye = places.addition(mine), [float(i == j).hex() for i in range(4) for j in range(4)]
    at, batch = max(rows.reads), next(task.inputs())
    out = model(batch.tokens).detach()[:, at]
    for row, logits in zip(batch.tokens.tolist(), out):
        sight, path, n = places.PlaceTerms(mine.decoder, rows, at, row[at], [eye] * 2), [0], len(rows.order)
        for place, position in enumerate(rows.order):
            path += [then for state, token, then in rows.steps[place] if (state, token) == (path[-1], row[position])]
        after, answer = rows.reads[at]
        right = answer(path[after])
        states, tokens, given = {0: 0, after: path[after]}, {}, sight.nothing
        for place in [*range(0, n, 2), *range(1, n, 2)]:
            sight.bound(states, tokens, given, right)
            states, tokens = (
                states | {place: path[place], place + 1: path[place + 1]},
                tokens | {place: row[rows.order[place]]},
            )
            given = list(map(sum, zip(given, sight.costs.get((place, tokens[place]), sight.nothing))))
        margin = float(logits[right] - max(x for j, x in enumerate(logits) if j != right))
        assert sight.bound(states, tokens, given, right) / forms.UNIT <= margin + 1e-12
        whole = places.PlaceTerms(mine.decoder, rows, at, row[at], [eye] * 2)
        assert sight.bound(states, tokens, given, right) == whole.bound(states, tokens, given, right)


def test_the_clock_ends_a_search_by_places(monkeypatch) -> None:
    monkeypatch.setattr("interp.support.resources.CAP", -1.0)
    found = certify_places(adder(), seconds=10)  # without seconds only steps count
    assert found.status != "certified"
    assert any("it took" in note for note in found.notes)


@pytest.fixture(scope="module")
def proved(tmp_path_factory) -> dict:
    model = adder()
    found = certify_places(model)
    assert found.status == "certified"
    path = write_evidence(
        found, MadeBy(model, METHOD, {}, write_evidence), tmp_path_factory.mktemp("places") / "proof.json.gz"
    )
    return json.loads(gzip.decompress(path.read_bytes()))


def test_the_evidence_of_an_adder_holds(proved: dict) -> None:
    _, said, rounding = check.check(copy.deepcopy(proved))
    assert "right on all 81 pairs of numbers of 2 digits in base 3, every digit of their sums" in said
    assert rounding == 0


def without_a_position(evidence: dict) -> None:
    del evidence["parts"][1]


def without_a_place(evidence: dict) -> None:
    evidence["parts"][1][1].pop()


def a_place_twice(evidence: dict) -> None:
    evidence["parts"][1][1][0] = evidence["parts"][1][1][1]


def flat_coordinates(evidence: dict) -> None:
    evidence["parts"][0][2][0] = ["0x0p+0" if x else x for x in evidence["parts"][0][2][0]]


def a_larger_margin(evidence: dict) -> None:
    evidence["claim"]["margin"] = (30 * float.fromhex(evidence["claim"]["margin"])).hex()


def other_weights(evidence: dict) -> None:
    values = evidence["weights"]["unembed.W_U"]["values"]
    values[-3:] = values[-3:][::-1]
    vandals.mend_hash(evidence)


def other_labels(evidence: dict) -> None:
    """Numbers begin with the other end: other sums."""
    evidence["spec"]["task"]["parameters"]["order"] = "most"
    vandals.mend_name(evidence)


def more_digits(evidence: dict) -> None:
    evidence["spec"]["task"]["parameters"]["digits"] = 3
    vandals.mend_name(evidence)


def fewer_positions(evidence: dict) -> None:
    """Then there is no model: a table has more rows than the spec says, and it cannot read such rows."""
    evidence["spec"]["max_length"] -= 1
    vandals.mend_name(evidence)


def no_automaton(evidence: dict) -> None:
    evidence["spec"]["task"] = {"name": "parity", "parameters": {}}
    vandals.mend_name(evidence)


def another_kind(evidence: dict) -> None:
    evidence["claim"] |= {"kind": "inputs", "domain": {"read": None, "errors": []}}


def a_rounded_claim(evidence: dict) -> None:
    evidence["claim"]["format"] = "float32"


FORGED = (without_a_position, without_a_place, a_place_twice, flat_coordinates, a_larger_margin, other_weights,
          other_labels, more_digits, fewer_positions, no_automaton, another_kind, a_rounded_claim)  # fmt: skip


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_forged_evidence_of_an_adder_is_refused(proved: dict, forge) -> None:
    evidence = copy.deepcopy(proved)
    forge(evidence)
    with pytest.raises(check.Fault) as fault:
        check.check(evidence)
    assert not str(fault.value).startswith("the claim says"), "only the sentence was wrong"


def test_activations_are_enclosed() -> None:
    """Tangents and ranges at 400 numbers, against float64."""
    for name, curve in (("gelu", torch.nn.functional.gelu), ("silu", torch.nn.functional.silu)):
        for center in torch.linspace(-14, 14, 100, dtype=torch.float64).tolist():
            for half in (0.0, 0.01, 0.3, 5.0):
                c, r = round(center * forms.UNIT), round(half * forms.UNIT)
                value, slope, rest = forms._smooth(name, c, 0, r)
                inside = torch.linspace(center - half, center + half, 101, dtype=torch.float64)
                line = value / forms.UNIT + slope / forms.UNIT * (inside - center)
                assert (curve(inside) - line).abs().max().item() <= rest / forms.UNIT + 1e-14
                assert rest / forms.UNIT <= 0.6 * half**2 + 1e-3 or rest / forms.UNIT <= half + 0.2


def test_coordinates_up_to_2_are_inverted_exactly() -> None:
    given = [[0.0, 2.0, 0.5], [-2.0, 0.25, 0.0], [1.0, 0.0, 0.125]]
    flat = [x.hex() for row in given for x in row]
    forward, columns = places.coordinates(flat, 3)
    assert forward == [[int(x * 2**192) for x in row] for row in given]
    for row in range(3):
        for i, column in enumerate(columns):
            assert sum(x * y for x, y in zip(map(Fraction, given[row]), column)) == (row == i)
    for wrong, said in (((2 + 2**-50).hex(), "of size 2 at most"), ((2.0**-200).hex(), "too fine")):
        with pytest.raises(check.Fault, match=said):
            places.coordinates([*flat[:8], wrong], 3)
    with pytest.raises(check.Fault, match="do not tell values apart"):
        places.coordinates([*flat[:3], *flat[:3], *flat[6:]], 3)


def test_bounds_on_a_score_hold_at_the_corners_of_its_vectors() -> None:
    """A query and a key within 1/4 of what they are near: their score's least and greatest are among the corners."""
    decoder, one = importlib.import_module("bare_check.decoder"), check.ONE
    near = {"q": (2.0, -1.0), "k": (1.0, 3.0)}
    vectors = {
        name: check.enclosures.Vec(tuple(int(x * one) for x in mid), (one // 4,) * 2, (0, 0))
        for name, mid in near.items()
    }
    head = SimpleNamespace(turned=lambda name, *_: vectors[name], layer={"scale": 0.5}, width=2, d=2)
    low, high = decoder.Decoder.score(head, 0, (0, 0), (0, 0))
    corners = [
        0.5 * sum((a + x) * (b + y) for a, b, x, y in zip(near["q"], near["k"], moved[:2], moved[2:]))
        for moved in product((-0.25, 0.25), repeat=4)
    ]
    assert low / one <= min(corners)
    assert high / one >= max(corners)
