"""Direct attribution: the parts add up to the difference, and each is what an explicit product says it is."""

import copy
from dataclasses import replace

import pytest
import torch
from drawn_weights import draw_each, hooked
from saved_models import FewB
from standins import NAMES, padding_hooks, read_of, standin

import interp
from interp.errors import InterpError, UnsupportedError
from interp.measures import circuits, heads
from interp.measures.components import contrast, direct_logit_attribution, first_largest
from interp.measures.survey import survey
from interp.models.subject import Subject


def by_hand(name: str, subject: Subject, batch: interp.Batch) -> dict[str, torch.Tensor]:
    """Each component times the readout of one read after the other, with a norm written out."""
    model = subject.model
    cache: dict[str, torch.Tensor] = {}
    hooks = [*padding_hooks(model, batch), (lambda n: True, lambda act, hook: cache.update({hook.name: act.double()}))]
    logits = read_of(name, model.run_with_hooks(batch.tokens, fwd_hooks=hooks)).double().flatten(0, -2)
    labels = batch.labels.flatten()
    rivals = logits.clone()
    rivals[torch.arange(len(labels)), labels] = -torch.inf
    rival = rivals.argmax(1)
    final = cache[f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"]
    gain, shift, scale = 1.0, 0.0, 1.0
    if model.cfg.normalization_type is not None:
        gain, shift = model.ln_final.w.double(), model.ln_final.b.double()
        scale = read_of(name, final.var(-1, correction=0, keepdim=True).add(1e-5).sqrt()).flatten(0, -2)
    columns = (model.W_U[:, labels] - model.W_U[:, rival]).double().T

    def share(written: torch.Tensor) -> torch.Tensor:
        read = read_of(name, written).flatten(0, -2)
        centered = read - read.mean(-1, keepdim=True) if model.cfg.normalization_type is not None else read
        return (centered / scale * gain * columns).sum(-1)

    found = {"embedding": share(cache["hook_embed"]), "positions": share(cache["hook_pos_embed"])}
    for layer in range(model.cfg.n_layers):
        for head in range(model.cfg.n_heads):
            written = cache[f"blocks.{layer}.attn.hook_z"][:, :, head] @ model.W_O[layer, head].double()
            found[f"head {layer}.{head}"] = share(written)
        if not model.cfg.attn_only:
            found[f"MLP {layer}"] = share(cache[f"blocks.{layer}.hook_mlp_out"])
    biases = model.b_O.double().sum(0).expand(*batch.tokens.shape, -1)
    constant = (shift * columns).sum(-1) if model.cfg.normalization_type is not None else 0.0
    found["biases"] = share(biases) + constant + (model.b_U[labels] - model.b_U[rival]).double()
    rows = torch.arange(len(labels))
    found["difference"] = logits[rows, labels] - logits[rows, rival]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_component_of_a_strangers_model(name) -> None:
    subject = standin(name)
    batch = subject.task.sample(30, seed=5)
    found, wanted = direct_logit_attribution(subject, batch), by_hand(name, subject, batch)
    torch.testing.assert_close(found.difference, wanted.pop("difference"), rtol=0, atol=1e-5)
    assert set(found.parts["component"]) == set(wanted)
    for column, component in enumerate(found.parts["component"]):
        torch.testing.assert_close(found.values[:, column], wanted[component], rtol=0, atol=2e-5)
    torch.testing.assert_close(found.values.sum(1), found.difference, rtol=0, atol=2e-5)
    table = found.to_frame().set_index("component")
    assert table["effect"].sum() == pytest.approx(float(found.difference.mean()), abs=1e-5)
    assert found.by_answer().groupby("answer")["effect"].sum().to_numpy().shape == (subject.task.n_out,)


@pytest.mark.parametrize("name", ["count01/paper", "languages/first", "languages/one", "memorization/bigram"])
def test_shipped_models_add_up(name) -> None:
    model = interp.load(name)
    batch = model.task.sample(12, model.task.splits[-1], seed=1)
    found = direct_logit_attribution(model, batch)
    assert float((found.values.sum(1) - found.difference).abs().max()) < 1e-3
    right = (model.predict(batch.tokens) == batch.labels).numpy()
    assert ((found.difference > 0).numpy() == right).all()  # what decides is the sign of the difference


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("histogram/dot", "after a ReLU readout"), ("languages/first-learned", "after post-layer-norm")],
)
def test_what_is_no_sum_is_refused(name, sentence) -> None:
    model = interp.load(name)
    with pytest.raises(UnsupportedError, match=sentence):
        direct_logit_attribution(model, model.task.sample(4, model.task.splits[-1]))


def test_a_part_that_is_not_seen_is_noticed() -> None:
    subject = standin("balance")
    model = subject.model
    batch = subject.task.sample(4)
    handle = model.unembed.register_forward_hook(lambda module, inputs, out: out * torch.tensor([1.0, 2.0, 3.0]))
    try:
        with pytest.raises(InterpError, match="direct attribution misses a part of this model"):
            direct_logit_attribution(subject, batch)
    finally:
        handle.remove()


def test_effect_and_spread_are_mean_and_deviation_over_reads() -> None:
    found = direct_logit_attribution(standin("recall"), standin("recall").task.sample(5, seed=1))
    table, values = found.to_frame(), found.values.numpy()
    for column, row in enumerate(table.itertuples()):
        own = values[:, column]
        assert row.effect == pytest.approx(sum(own) / 5)
        assert row.spread == pytest.approx((sum((own - sum(own) / 5) ** 2) / 5) ** 0.5)
        assert row.negative == pytest.approx(sum(own < 0) / 5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thinned(2)
def test_a_strangers_model_says_the_same_as_a_task_model(name) -> None:
    """What interp.load makes of these configurations, final layer norm included, is measured like the stock model."""
    theirs = standin(name)
    ours = Subject.of(interp.load(theirs.model, task=theirs.task))
    assert isinstance(ours.model, interp.TaskModel)
    batch = theirs.task.sample(20, seed=6)
    found, wanted = (direct_logit_attribution(subject, batch) for subject in (ours, theirs))
    added = set(found.parts["component"])
    assert added <= set(wanted.parts["component"])  # positions that are zero throughout are none
    for column, component in enumerate(wanted.parts["component"]):
        if component in added:
            mine = found.values[:, list(found.parts["component"]).index(component)]
            torch.testing.assert_close(mine, wanted.values[:, column], rtol=0, atol=1e-4)
    a, b = (heads.head_outputs(subject, batch) for subject in (ours, theirs))
    torch.testing.assert_close(a.contributions, b.contributions, rtol=0, atol=1e-4)
    for which in ("QK", "OV"):
        mine, known = (circuits.token_circuits(subject, which)["value"].to_list() for subject in (ours, theirs))
        assert mine == pytest.approx(known, rel=1e-4, abs=1e-4)
    mine, known = (survey(subject, batch, batch).drop(columns=["part", "kind"]) for subject in (ours, theirs))
    for column in known:
        assert mine[column].astype(float).to_list() == pytest.approx(
            known[column].astype(float).to_list(), rel=1e-3, abs=1e-3, nan_ok=True
        ), column


def test_an_indicator_s_difference_is_distance_to_its_tolerance() -> None:
    """Yes is |s| <= tolerance: tolerance - |s| where the answer is yes, |s| - tolerance where it is no."""
    subject = Subject.of(interp.build("languages/palindrome", variant="binary", tolerance=0.5))
    s, yes = torch.tensor([0.2, -0.2, 0.9, -0.9, 0.2, -0.2, 0.9, -0.9]), torch.tensor([1, 1, 1, 1, 0, 0, 0, 0])
    found = contrast(subject, s[:, None], yes)
    wanted = torch.where(yes == 1, 0.5 - s.abs(), s.abs() - 0.5)
    torch.testing.assert_close(found.of(s[:, None].double()), wanted.double())


def test_half_precision_adds_up_to_its_own_rounding() -> None:
    """In bfloat16 parts and outputs are rounded at 1 part in 256: no reason to say that a part is missing."""
    subject = standin("balance")
    batch = subject.task.sample(50, seed=2)
    exact = direct_logit_attribution(subject, batch)
    half = copy.deepcopy(subject.model)
    half.to(torch.bfloat16, print_details=False)
    found = direct_logit_attribution(replace(subject, model=half), batch)
    size = float(exact.values.abs().sum(1).mean())
    assert (found.to_frame()["effect"] - exact.to_frame()["effect"]).abs().max() < 0.02 * size
    half.unembed.register_forward_hook(lambda module, given, out: 2 * out)  # what attribution does not see
    with pytest.raises(InterpError, match="direct attribution misses a part"):
        direct_logit_attribution(replace(subject, model=half), batch)


def test_outputs_equal_up_to_rounding_are_tied() -> None:
    """The first is chosen on every CPU, whichever of them rounding makes larger; hidden outputs (-inf) never."""
    tied = torch.tensor([[-torch.inf, 30.0, 30.0 + 1e-5, 2.0], [-torch.inf, 30.0 + 1e-5, 30.0, 2.0]])
    assert first_largest(tied).tolist() == [1, 1]
    assert first_largest(torch.tensor([[-torch.inf, 30.0, 30.01, 2.0]])).tolist() == [2]


def test_contributions_to_named_answers() -> None:
    model = interp.load("count01/paper")
    batch = model.task.sample(5, seed=1)
    found = direct_logit_attribution(model, batch, answer="5", rival="4")
    words = list(model.task.answer_words)
    logits = Subject.of(model).logits(batch).double()
    wanted = logits[:, words.index("5")] - logits[:, words.index("4")]
    torch.testing.assert_close(found.values.sum(1), wanted, rtol=1e-4, atol=1e-4)
    alone = direct_logit_attribution(model, batch, rival="4")  # answers of 4 minus themselves tell nothing
    right = Subject.of(model).classes(batch) == words.index("5")
    torch.testing.assert_close(alone.values.sum(1), wanted[right], rtol=1e-4, atol=1e-4)
    assert 0 < len(alone.difference) < 5
    with pytest.raises(InterpError, match="the right answer is '4' throughout"):
        direct_logit_attribution(model, batch[~right], rival="4")
    with pytest.raises(InterpError, match="unknown answer"):
        direct_logit_attribution(model, batch, answer="six")
    with pytest.raises(InterpError, match="both '5'"):
        direct_logit_attribution(model, batch, answer="5", rival="5")
    with pytest.raises(UnsupportedError, match="the largest of its outputs"):
        direct_logit_attribution(interp.build("languages/parity"), answer="yes")


@pytest.mark.parametrize(("name", "options", "says"), [
    ("count01/minimal", {}, "the logit of the right answer minus that of its best rival, mean"),
    ("languages/parity", {}, "the output (its negative where the right answer needs it below 0), mean"),
    ("languages/palindrome", {"variant": "binary", "tolerance": 0.5}, "the distance of the output from its tol"),
])  # fmt: skip
def test_the_title_says_what_is_divided_among_parts(name: str, options: dict, says: str) -> None:
    model = interp.build(name, **options)
    assert says in direct_logit_attribution(model, model.task.sample(3)).title


def test_of_a_set_the_output_nearest_to_wrong_is_divided() -> None:
    fields = {"n_layers": 1, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 12, "attn_only": True}
    task = FewB()
    own = hooked(**fields, d_vocab=task.d_vocab, d_vocab_out=3, normalization_type=None)
    draw_each(own, 0.4)
    subject, batch = Subject.external(own, task), task.sample(6)
    found, outputs = direct_logit_attribution(subject, batch), subject.logits(batch).double()
    signed = torch.where(task.allowed(batch.tokens).flatten(0, 1), outputs, -outputs)
    torch.testing.assert_close(found.difference, signed.amin(1), rtol=1e-4, atol=1e-5)
    assert "adds to the output that is nearest to being wrong (its negative if it must be below 0), mean" in found.title
