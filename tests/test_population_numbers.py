"""Reports on models with hooks, on tasks whose answers or rows do not fit, and numbers computed again by hand."""

import pytest
import torch
from standins import NAMES, Recall, padding_hooks, read_of, standin

import interp
from interp.errors import InterpError, UnsupportedError
from interp.measures.accuracy import accuracy_on
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections import Study, circuits, embeddings, faithfulness, fill
from interp.report.sections import _shared as shared
from interp.report.sections import components as parts
from interp.report.sections.accuracy import describe_sampled_accuracy, population
from interp.report.sections.live_payload import payload
from interp.report.sections.question import hooks_sentence
from interp.tasks.populations import InputsAsked


def test_a_hooked_model_is_named_first_and_has_no_live_panel() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=2, v=4)
    model.add_perma_hook("blocks.0.hook_resid_pre", lambda value, hook: 0 * value)
    report = interp.analyze(model, sections=["question", "live", "accuracy"], inputs=16)
    assert report.verdict.splitlines()[0].startswith("This model has a hook at blocks.0.hook_resid_pre: every")
    with pytest.raises(UnsupportedError, match="there is a hook at blocks"):
        payload(Subject.of(model), None)
    assert interp.analyze(interp.load("count01/minimal"), sections=["question"]).verdict.startswith("Task count01")


@pytest.mark.parametrize(
    ("names", "says"),
    [([], ""), (["a"], "This model has a hook at a: "), (["a", "b"], "at a and b: every number here is of the "),
     (list("abc"), "at a, b and c: "), (list("abcd"), "a, b, c and 1 more place: "),
     (list("abcde"), "This model has hooks at a, b, c and 2 more places: ")],
)  # fmt: skip
def test_hooks_in_words(names: list[str], says: str) -> None:
    assert says in hooks_sentence(names)
    assert bool(says) == bool(hooks_sentence(names))


class Beyond(Recall):
    """Recall with an answer that is none of its three."""

    name = "recall-beyond"

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        plain = super().batch(tokens)
        return interp.Batch(plain.tokens, plain.lengths, plain.labels + 1)


class Longer(Recall):
    """Recall with rows that are longer than the model takes."""

    name = "recall-longer"

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        short = super().sample(n, split, seed)
        tokens = torch.cat([short.tokens[:, :2], short.tokens], 1)
        return interp.Batch(tokens, short.lengths + 2, short.labels)


@pytest.mark.parametrize(
    ("task", "says"),
    [(Beyond(), r"task recall-beyond: classes\(batch\) runs from 1 to 3, outside 0 to 2"),
     (Longer(), "inputs of task recall-longer have 9 tokens; the model's n_ctx is 7")],
)  # fmt: skip
def test_a_task_that_does_not_fit_is_refused_in_one_sentence(task: Recall, says: str) -> None:
    with pytest.raises(InterpError, match=says):
        interp.analyze(Subject.external(standin("recall").model, task=task), sections=["accuracy"])


@pytest.mark.parametrize("splits", [("only",), ("train", "test"), ("train", "test", "shifted")])
def test_the_sampler_is_measured_on_the_last_split(splits: tuple[str, ...]) -> None:
    class Asked(Recall):
        def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
            asked.add(split)
            return Recall().sample(n, seed=seed)

    asked, task = set[str](), Asked()
    task.splits = splits  # type: ignore[misc]
    study = Study(Subject.external(standin("recall").model, task=task))
    right = accuracy_on(study.subject, population(study)).accuracy
    study.populations.clear()
    assert (describe_sampled_accuracy(study, right), study.populations) == ("", {})  # what is not said is not listed
    assert describe_sampled_accuracy(study, 1 - right)
    assert asked == {splits[-1]}


@pytest.mark.parametrize("name", NAMES)
def test_a_subject_can_be_called_like_a_model(name: str) -> None:
    subject = standin(name)
    batch = subject.task.sample(5, seed=3)
    theirs = subject.model.run_with_hooks(batch.tokens, fwd_hooks=padding_hooks(subject.model, batch))
    torch.testing.assert_close(subject(batch.tokens)[:, 0], theirs[:, 0], rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- numbers again, on stock hooks


def _logits(name: str, batch: interp.Batch, hooks: tuple = ()) -> torch.Tensor:  # type: ignore[type-arg]
    model = standin(name).model
    with torch.no_grad():
        return read_of(name, model.run_with_hooks(batch.tokens, fwd_hooks=[*padding_hooks(model, batch), *hooks]))


def _accuracy(name: str, batch: interp.Batch, hooks: tuple = ()) -> float:  # type: ignore[type-arg]
    return float((_logits(name, batch, hooks).argmax(-1) == batch.labels).double().mean())


def _mean_hook(name: str, layer: int, head: int, reference: interp.Batch, means: dict[int, torch.Tensor]) -> tuple:  # type: ignore[type-arg]
    """Mean ablation with plain hooks: by position where rows have one length, else at the reads and elsewhere."""
    model, point = standin(name).model, f"blocks.{layer}.attn.hook_z"
    if layer not in means:
        kept: dict[str, torch.Tensor] = {}
        hooks = [*padding_hooks(model, reference), (point, lambda z, hook: kept.update(z=z))]
        with torch.no_grad():
            model.run_with_hooks(reference.tokens, fwd_hooks=hooks)
        if name == "ends":
            inside = reference.attention_mask.clone()
            inside[:, 0] = False
            mean = kept["z"][inside].double().mean(0).expand(reference.tokens.shape[1], -1, -1).clone()
            mean[0] = kept["z"][:, 0].double().mean(0)
        else:
            mean = kept["z"].double().mean(0)
        means[layer] = mean.float()

    def put(z: torch.Tensor, hook: object) -> torch.Tensor:
        z = z.clone()
        z[:, :, head] = means[layer][: z.shape[1], head]
        return z

    return (point, put)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thinned(3)
def test_report_numbers_equal_plain_hooks_on_the_same_inputs(name: str) -> None:
    """Accuracy, heads, components, patching, and the circuit, of models that others trained."""
    study = Study(standin(name), asked=InputsAsked(inputs=300))
    report = Report(name)
    fill(study, report, ["accuracy", "heads", "components", "patching", "faithfulness"])
    task, cfg = study.task, study.model.cfg
    batch = task.sample(300, "test", seed=0)
    whole = _accuracy(name, batch)
    assert report.facts["accuracy"] == pytest.approx(whole)
    for made in (shared.parts_population, faithfulness.population, parts.population, circuits.population):
        assert study.once(made).batch.tokens.equal(batch.tokens)
    reference = task.sample(300, "train", seed=0)
    heads = report.tables["heads"].set_index("part")
    means: dict[int, torch.Tensor] = {}
    hooks = {
        f"head {layer}.{head}": _mean_hook(name, layer, head, reference, means)
        for layer in range(cfg.n_layers)
        for head in range(cfg.n_heads)
    }
    for part, hook in hooks.items():
        assert heads.loc[part, "accuracy_mean"] == pytest.approx(_accuracy(name, batch, (hook,)), abs=1 / 250)
    table = report.tables["circuit"].set_index("what")["accuracy"]
    assert table["model"] == pytest.approx(whole)
    assert table["nothing"] == pytest.approx(_accuracy(name, batch, tuple(hooks.values())), abs=1 / 250)
    # The parts add up to the right output minus the best wrong one.
    logits = _logits(name, batch).flatten(0, -2).double()
    right = logits.gather(1, batch.labels.flatten()[:, None])[:, 0]
    wrong = logits.scatter(1, batch.labels.flatten()[:, None], -torch.inf).amax(1)
    assert report.facts["mean_difference"] == pytest.approx(float((right - wrong).mean()), rel=1e-4)
    assert report.tables["components"]["effect"].sum() == pytest.approx(float((right - wrong).mean()), rel=1e-3)


def test_the_populations_of_all_sections_are_what_was_asked_for() -> None:
    study = Study(standin("recall"), asked=InputsAsked(inputs=250))
    study.asked_of["variables"] = InputsAsked(inputs=60)
    assert study.once(embeddings.population).n == 60
    assert study.once(shared.parts_population).on == "on a sample of 250 inputs (split test, seed 0)"
    assert study.once(circuits.population).n == 250
