"""Models whose outputs are not finite: no engine counts such an answer as right, and a run that diverged says so."""

import pytest
import torch

from interp.errors import InterpError
from interp.models.spec import MLP, Bias, Layer, ModelSpec, Training
from interp.tasks import make_task
from interp.training.engines.vmap import VmapEngine
from interp.training.results import Diverged
from interp.training.train import choose_engine, train

SIZES = {"batch_size": 16, "init": "torch", "learning_rate": 1e30, "epochs": 2}
FRESH = Training(**SIZES, data="fresh", samples_per_epoch=32)
HISTOGRAM = ModelSpec(
    task={"name": "histogram", "parameters": {"T": 4, "L": 3}}, d_model=4, readout_at="all", direction="bidirectional",
    layers=[Layer(d_head=4, value_output="identity")], readout="relu_mlp", readout_width=4,
    origin=FRESH,
)  # fmt: skip
LAYER = Layer(d_head=3, n_heads=2, norm="post", mlp=MLP(d_mlp=4), bias=Bias(q=True, k=True, v=True, o=True))
PARITY = ModelSpec(
    task={"name": "parity", "parameters": {"length": 5}}, d_model=6, readout_at="[CLS]", readout="scalar",
    decision="sigmoid", direction="bidirectional", layers=[LAYER], origin=FRESH,
)  # fmt: skip
COUNT01 = ModelSpec(
    task={"name": "count01"}, d_model=6, readout_at="=", layers=[Layer(d_head=3)], origin=Training(**SIZES)
)
SPECS = {
    "reference": HISTOGRAM, "vmap": HISTOGRAM, "fused": HISTOGRAM, "count-space": COUNT01,
    "encoder": PARITY,
}  # fmt: skip
SLOW = [pytest.param(name, marks=pytest.mark.slow) if "fused" in name else name for name in SPECS]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", SLOW)
def test_no_output_that_is_not_finite_is_right(name: str, value: float) -> None:
    """The largest of NaNs was the first class: a share of the answers was right."""
    spec = SPECS[name]
    task, cpu = make_task(spec.task), torch.device("cpu")
    engine = choose_engine(spec, task, cpu, name)(spec, task, [0, 1], cpu, torch.float32)
    engine.prepare(lambda text: None)
    before = engine.evaluate()
    assert bool((before >= 0).all())
    state = {key: tensor.clone() for key, tensor in engine.state().items()}
    for tensor in state.values():
        if tensor.is_floating_point():
            tensor.fill_(value)
    engine.load_state(state)
    assert engine.evaluate().tolist() == [0.0, 0.0]


def test_a_run_that_diverged_says_so() -> None:
    with pytest.raises(InterpError, match=r"seed 1 of .* diverged: its loss is nan after epoch 1, .* rate is 1e\+30$"):
        train(HISTOGRAM, [1], engine="vmap", progress=False)


def test_a_diverged_seed_does_not_cost_the_others_their_models(monkeypatch: pytest.MonkeyPatch) -> None:
    mild = HISTOGRAM.replace(origin=FRESH.model_copy(update={"learning_rate": 1e-3}))
    healthy = train(mild, [3, 4, 5], engine="vmap", progress=False)
    parameters = VmapEngine.parameters

    def second_is_lost(self: VmapEngine) -> dict[str, torch.Tensor]:
        return {name: values.index_fill(0, torch.tensor([1]), torch.nan) for name, values in parameters(self).items()}

    monkeypatch.setattr(VmapEngine, "parameters", second_is_lost)
    said = r"^seed 4 of .*: its weights are not finite; .*; this error's .models holds the 2 others$"
    with pytest.raises(Diverged, match=said) as caught:
        train(mild, [3, 4, 5], engine="vmap", progress=False)
    kept = caught.value.models
    assert [model.seed for model in kept] == [3, 5]
    assert all(torch.equal(mine.embed.W_E, one.embed.W_E) for mine, one in zip(kept, healthy[::2]))
