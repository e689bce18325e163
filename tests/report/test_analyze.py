"""Reports on several models, and on models that are not ours."""

import pytest
import torch

import interp
from interp.errors import InterpError, UnsupportedError
from interp.families.count01 import Count01
from interp.models.lens import HookedTransformer, config, quiet_construction
from interp.models.subject import Subject
from interp.report.analyze import list_sections


def test_a_comparison_tells_models_and_tasks_apart() -> None:
    """A model twice, and one of another task: three rows, told apart by name, and each with its task."""
    sources = ["languages/one", "count01/minimal", "languages/one"]
    table = interp.analyze(sources, sections=["question"]).tables["comparison"]
    assert table["model"].to_list() == ["languages/one", "count01/minimal", "languages/one (3)"]
    assert table["task"].to_list() == ["one", "count01", "one"]
    assert "task" not in interp.analyze(["count01/minimal"] * 2, sections=["question"]).tables["comparison"]
    sections = list_sections(["languages/one"] * 2)
    assert list(sections.columns) == ["section", "title", "languages/one", "languages/one (2)"]


def test_of_several_models_an_error_names_the_one_it_is_about() -> None:
    broken = interp.build("count01/minimal")
    with torch.no_grad():
        broken.embed.W_E[0, 0] = torch.nan
    sentence = "^1 of the [0-9]+ weights of embed.W_E is not finite: the model cannot be analyzed$"
    for use in (interp.analyze, list_sections, interp.live):
        with pytest.raises(InterpError, match=sentence):
            use(broken)
    with pytest.raises(InterpError, match=f"^{broken.spec.id}, seed 0: {sentence[1:]}"):
        interp.analyze(["count01/minimal", broken])
    with pytest.raises(UnsupportedError, match=r"^count01/minimal: section counting_answers does not apply: "):
        interp.analyze(["count01/minimal"] * 2, sections=["counting_answers"])


def test_options_of_a_section_that_nobody_asked_for_are_refused() -> None:
    with pytest.raises(InterpError, match="options are given for section heads, but sections does not name it"):
        interp.analyze("count01/minimal", sections=["question"], options={"heads": {"inputs": 5}})


def own_model(order: list[int], **changes: object) -> HookedTransformer:
    """A stock HookedTransformer with the shipped model's weights and another order of tokens."""
    ours = interp.load("count01/paper")
    fields = {
        "n_layers": 1, "d_model": 32, "n_heads": 16, "d_head": 2, "attn_only": True, "n_ctx": 700, "d_vocab": 8,
        "normalization_type": None, "use_attn_scale": False, "device": "cpu",
    }  # fmt: skip
    with quiet_construction():
        model = HookedTransformer(config(**{**fields, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
        model.embed.W_E.copy_(ours.embed.W_E[order])
    return model


def test_a_model_of_your_own_with_its_own_vocabulary() -> None:
    """Token t of the task has id ids[t]; a permuted model with permuted ids gives the same outputs."""
    plain, permuted = own_model(list(range(8))), own_model(list(range(8)))
    order = torch.tensor([3, 0, 1, 2, 7, 6, 5, 4])
    with torch.no_grad():
        permuted.embed.W_E[order] = plain.embed.W_E.clone()
        permuted.unembed.W_U[:, order] = plain.unembed.W_U.clone()
        permuted.unembed.b_U[order] = plain.unembed.b_U.clone()
    task = interp.load("count01/paper").task
    ids = dict(zip(task.vocabulary, order.tolist()))
    batch = task.sample(6, "train", seed=0)
    torch.testing.assert_close(
        Subject.external(permuted, "count01", ids).logits(batch), Subject.external(plain, "count01").logits(batch)
    )


class Shorter(Count01):
    """Count01 with counts up to 20: sentences of about 30 tokens, which a stock model runs in no time."""

    name = "count01-shorter"
    boxes = {split: type(box)((0, 20), (0, 20), (0, 20)) for split, box in Count01.boxes.items()}  # noqa: RUF012


interp.register_task(Shorter)


@pytest.mark.slow
def test_a_report_on_a_model_of_your_own_says_that_it_is_sampled() -> None:
    report = interp.analyze(
        Subject.external(own_model(list(range(8))), task="count01-shorter"), sections=["accuracy", "separation"]
    )
    assert {"low", "high", "rows"} <= set(report.tables["accuracy"].columns)
    assert "on a sample" in report.verdict
    assert len(report.tables["separation"]) == 16


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "load takes it with its task"),
        ({"task": "cuont01"}, "unknown task 'cuont01'; .*did you mean 'count01'"),
        ({"task": "count01", "tokens": {"0": 1}}, "tokens lacks .BOS., 1, 2"),
        ({"task": "count01", "tokens": {"a": 1}}, "unknown token of task count01 'a'"),
    ],
)
def test_bad_input_for_your_own_model(arguments: dict, sentence: str) -> None:
    with pytest.raises(InterpError, match=sentence):
        interp.analyze(interp.load(own_model(list(range(8))), **arguments))


def test_a_vocabulary_that_does_not_fit() -> None:
    with quiet_construction():
        other = HookedTransformer(
            config(n_layers=1, d_model=4, n_heads=1, d_head=4, attn_only=True, n_ctx=8, d_vocab=5, device="cpu")
        )
    with pytest.raises(InterpError, match="the model has 5 tokens, task count01 has 8"):
        interp.analyze(Subject.external(other, task="count01"))
    words = interp.load("count01/paper").task.vocabulary
    with pytest.raises(InterpError, match=r"id 5; the model's ids are 0 to 4"):
        interp.analyze(Subject.external(other, task="count01", tokens={word: i for i, word in enumerate(words)}))
    with pytest.raises(InterpError, match="is a model of task count01, not parity"):
        interp.load("count01/paper", task="parity")
    with pytest.raises(InterpError, match="no model is given"):
        interp.analyze([])


def test_a_section_of_a_report_by_its_name() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=6)
    report = interp.analyze(model, sections=["patching", "accuracy"], inputs=50)
    found = report.section("patching")
    assert found.title == "Patching"
    assert list(found.figures) == ["patching_stream", "patching_heads"]
    assert all(found.figures[key] is report.figures[key] for key in found.figures)
    assert list(found.tables) == ["patching"]
    assert "Patching head 0.0 recovers 1 " in found.text
    assert "patching_heads" in repr(found)
    assert "srcdoc=" in found._repr_html_()
    assert "certificate" not in found.tables
    with pytest.raises(InterpError, match="unknown section of this report 'heads'; known: accuracy, patching"):
        report.section("heads")
    with pytest.raises(InterpError, match=r"unknown figure of this report 'patching_head'; known: .*did you mean"):
        report.figures["patching_head"]


def test_a_comparison_has_no_accuracy_without_no_part() -> None:
    """Of sixteen heads none is needed; the lowest accuracy without one of them is not that without "none"."""
    table = interp.analyze(["count01/minimal", "count01/paper"], sections=["heads"], inputs=200).tables["comparison"]
    assert table["most_needed_part"].to_list() == ["head 0.0", "none"]
    assert table["accuracy_without_it"].isna().to_list() == [False, True]
