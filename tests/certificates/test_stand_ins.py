"""Stand-ins for small adders that others publish: trained a little, judged, and compared with all pairs.

d_model 3 to 7, one layer, RMS norms; learned, sinusoidal and rotary positions; GELU and gated SiLU; a query-key norm;
tied, low-rank, shared and split matrices.
"""

from typing import Any

import numpy as np
import pytest
import torch
from small_adders import compare, economize, stock, trained, truth

from interp.certificates import Certificate, certify, places
from interp.families.algorithmic import Addition
from interp.models.lens import HookedTransformer
from interp.models.subject import Subject

GATED = {"act_fn": "silu", "gated_mlp": True}
LEARNED = {"positional_embedding_type": "standard", "use_qk_norm": False}
ROTARY = {"positional_embedding_type": "rotary", "use_qk_norm": True, "rotary_base": 10.0}
SHAPES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "split, tied, low rank, GELU": ({"d_model": 5, "n_heads": 1, "d_head": 5, "d_mlp": 2, "act_fn": "gelu",
        "gated_mlp": False} | LEARNED, ("split", "tied", "low rank")),
    "sinusoidal, GELU": ({"d_model": 6, "n_heads": 1, "d_head": 4, "d_mlp": 4, "act_fn": "gelu", "gated_mlp": False} |
        LEARNED, ("sinusoidal", "tied")),
    "learned, tanh GELU, shared keys and values": ({"d_model": 7, "n_heads": 1, "d_head": 4, "d_mlp": 14, "act_fn":
        "gelu_new", "gated_mlp": False} | LEARNED, ("one matrix for keys and values", "tied")),
    "learned, query-key norm, gated SiLU": ({"d_model": 7, "n_heads": 2, "d_head": 4, "d_mlp": 6} | GATED | LEARNED |
        {"use_qk_norm": True}, ("low rank",)),
    "rotary, query-key norm, gated SiLU, d 3": ({"d_model": 3, "n_heads": 1, "d_head": 4, "d_mlp": 3} | GATED |
        ROTARY, ("tied",)),
    "rotary, query-key norm, gated SiLU, d 4": ({"d_model": 4, "n_heads": 1, "d_head": 4, "d_mlp": 8} | GATED |
        ROTARY, ("tied", "low rank")),
    "rotary, shared heads, GELU": ({"d_model": 6, "n_heads": 4, "d_head": 2, "d_mlp": 4, "act_fn": "gelu",
        "gated_mlp": False} | ROTARY | {"use_qk_norm": False, "n_key_value_heads": 2}, ("tied",)),
}  # fmt: skip


def stand_in(name: str, task: Addition, steps: int, seed: int = 0) -> HookedTransformer:
    fields, economies = SHAPES[name]
    norm = {"normalization_type": "RMS", "eps": 1e-5, "d_vocab_out": task.n_out, "attn_only": False}
    model = stock(np.random.default_rng(seed), task, task.length, **norm, **fields)
    economize(model, economies)
    return trained(model, task, steps, seed, economies)


def judged(model: HookedTransformer, task: Addition, seconds: float) -> tuple[Subject, Certificate]:
    subject = Subject.external(model, task, outputs={word: at for at, word in enumerate(task.answer_words)})
    return subject, places.certify_places(certify.converted_subject(subject), seconds=seconds)


QUICK = ("rotary, query-key norm, gated SiLU, d 3",)


TRAINED = [(4, 2, 30), (10, 2, 600), (4, 3, 600)]
"""A base, a number of digits, and steps of training: those of 30 steps are wrong."""


@pytest.mark.parametrize(("name", "base", "digits", "steps"), [
    pytest.param(name, *trained, marks=() if name in QUICK and trained[-1] == 30 else pytest.mark.slow)
    for name in SHAPES for trained in TRAINED
])  # fmt: skip
def test_a_stand_in_is_judged_as_all_pairs_say(name: str, base: int, digits: int, steps: int) -> None:
    task = Addition(base=base, digits=digits, plus="0", equals="0")
    subject, found = judged(stand_in(name, task, steps=steps), task, seconds=2 if steps == 30 else 20)
    compare(subject, found, truth(subject))
    assert steps > 30 or found.status == "refuted"


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_a_wrong_stand_in_of_ten_digits_is_refuted_at_once(name: str) -> None:
    """The counterexample is what the model writes, token by token."""
    task = Addition(plus="0", equals="0")
    subject, found = judged(stand_in(name, task, steps=30), task, seconds=10)
    assert found.status == "refuted"
    assert found.tables["answers"]["sets"].sum() < 400_000
    text, said = str(found.counterexample).split(": the answer at position ")
    at, answer, right = (int(word) for word in said.replace(", right", "").split(" is "))
    row = torch.tensor([task.parse(text)])
    assert int(subject.model(row[:, : at + 1])[0, -1].argmax()) == answer != right
    a, b = (int("".join(text.split()[start : start + 10])[::-1]) for start in (0, 11))
    assert right == (a + b) // 10 ** (at - 21) % 10
