"""Specs of models of a conditional table, one for each way its forward pass can go."""

from interp.families.memorization import kgram
from interp.families.memorization.constructions.models import memorization_spec
from interp.models.spec import MLP, Layer, ModelSpec, Training

TASK = kgram(N=4, M=5, k=2, concentration=0.5, prior="zipf", seed=1)
EXACT = Training(epochs=7, data="exact", learning_rate=0.02, schedule="cosine", init="torch")


def plain(**fields: object) -> ModelSpec:
    """A spec with factors, a readout bias and positions in the residual stream."""
    layer = Layer(n_heads=3, d_head=2, mlp=MLP(d_mlp=6, activation="gelu"))
    return ModelSpec(
        task=TASK.ref, d_model=4, layers=(layer,), positions="learned", max_length=2, readout_at="last",
        dtype="float64", origin=EXACT, **fields,
    )  # fmt: skip


SPECS = {
    "full": memorization_spec(TASK, 3, 4, dtype="float64", origin=EXACT),
    "narrow heads": memorization_spec(TASK, 3, 2, 2, dtype="float64", origin=EXACT),
    "one head and an MLP": memorization_spec(TASK, 3, 1, d_mlp=7, dtype="float64", origin=EXACT),
    "positions in the stream": plain(),
    "no positions": plain(readout_bias=False).replace(positions="none", max_length=None),
    "identity values": memorization_spec(TASK, 3, 2, dtype="float64", origin=EXACT).replace(
        layers=(Layer(n_heads=2, d_head=3, value_output="identity", scale=0.7),)
    ),
    "two layers": plain().replace(
        layers=(Layer(n_heads=1, d_head=2, norm="pre", bias={"q": True}), Layer(d_head=2, norm="pre"))
    ),
    "frozen embedding": memorization_spec(TASK, 3, 2, dtype="float64", origin=EXACT).replace(embedding="frozen"),
}
