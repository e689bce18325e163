"""Models at the edge of every method, against a forward pass in exact arithmetic (analyses/attack_certificates.py)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import mpmath
import numpy as np
import pytest
import torch

import interp
from interp.certificates.certificate import registered_methods

FILE = Path(__file__).resolve().parents[2] / "analyses" / "attack_certificates.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("attack_certificates", FILE)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


ATTACK = load()


def test_every_method_is_attacked() -> None:
    own = {"every path of an automaton, by places and states"}  # attacked in test_places_soundness
    assert set(ATTACK.DRAWS) == set(registered_methods()) - own


@pytest.mark.thinned(4)
@pytest.mark.parametrize("method", list(ATTACK.DRAWS))
def test_no_certificate_says_what_is_false(method: str) -> None:
    found = ATTACK.attack_many(method, range(1_000_000, 1_000_002))
    assert found.loc[found["false"] != "", ["seed", "false"]].to_numpy().tolist() == []


@pytest.mark.slow
@pytest.mark.parametrize("method", list(ATTACK.DRAWS))
def test_a_thousand_models_at_the_edge(method: str) -> None:
    found = ATTACK.attack_many(method, range(1000 // len(ATTACK.DRAWS) + 1))
    assert found.loc[found["false"] != "", ["seed", "false"]].to_numpy().tolist() == []
    assert found["status"].nunique() > 1


@pytest.mark.parametrize(("method", "seed"), [("every product of token sets", 134), ("count box", 467)])
def test_two_models_that_may_err_alone_and_not_in_a_batch(method: str, seed: int) -> None:
    """Of 20,000 the only ones: refuted within rounding, where it is the machine's arithmetic that decides."""
    attack = ATTACK.DRAWS[method](np.random.default_rng((seed, list(ATTACK.DRAWS).index(method))))
    found = interp.certify(attack.model, **attack.options)
    assert abs(found.worst_margin) <= found.rounding
    assert found.status != "certified"
    assert ("of another shape or order" in str(found)) == (found.status == "refuted")
    assert list(ATTACK._false(found, ATTACK.exact_margins(attack.model, attack.batch), 0)) == []


EXACT = ["count01/minimal", "languages/parity", "languages/parity-learned", "histogram/bos-exact",
         "histogram/lin-softmax-exact", "memorization/lookup"]  # fmt: skip


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", EXACT)
def test_the_exact_forward_pass_is_the_model_s(name: str) -> None:
    """The judge against the accused, in float64: the same outputs where nothing is at the edge."""
    model = interp.load(name, dtype="float64")
    batch = model.task.sample(2, seed=3)
    for row, length in zip(batch.tokens.tolist(), batch.lengths.tolist()):
        row = row[: min(length, 12)] if name != "count01/minimal" else [0, 2, 1, 2, 4]
        if name.startswith("memorization"):
            row = batch.tokens[0].tolist()
        out = model(torch.tensor([row]))[0].detach().numpy()
        wanted = np.array([[float(v) for v in place] for place in ATTACK.exact(model, row)])
        np.testing.assert_allclose(out, wanted, rtol=1e-9, atol=1e-9)
    assert mpmath.mp.dps == ATTACK.DIGITS


def test_a_false_certificate_would_be_seen() -> None:
    """A certificate of another model: right everywhere, they say."""
    model = interp.build("languages/one")
    found = interp.certify(model, longest=3)
    with torch.no_grad():
        model.unembed.W_U.mul_(-1)
        model.unembed.b_U.mul_(-1)
    batch = model.task.enumerate_up_to(3)
    margins = ATTACK.exact_margins(model, batch)
    wrong = int((model.predict(batch.tokens) != batch.labels).sum())
    says = list(ATTACK._false(found, margins, wrong))
    assert any("predict errs" in sentence for sentence in says)
    assert any("exact margins are not positive" in sentence for sentence in says)
    assert any("worst margin" in sentence for sentence in says)
    assert any("accuracy" in sentence for sentence in says)
