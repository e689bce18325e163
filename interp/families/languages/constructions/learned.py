"""Architecture and training recipes of the learned recognizers (Nowak et al. 2022, section 4.2; errata of the code).

Two encoder layers with post-layer-norm, one head, d_model 16, 64 ReLU neurons, one scalar read at [CLS]. The paper has
eps 0.1, its code 1e-5. Embeddings and linear maps are initialized as in torch. The published attention differs: its
input maps are Xavier-uniform (bound 0.306 at d = 16, here 0.25), and its biases start at zero.
"""

from typing import Literal

from interp.families.languages.tasks.language import Language
from interp.models.spec import MLP, Bias, Layer, ModelSpec, Training

PUBLISHED = Training(
    epochs=1000, batch_size=1, data="fresh", samples_per_epoch=100, learning_rate=3e-4, init="torch"
)  # fmt: skip
"""One step per string, 100 new strings per epoch, and 1000 epochs (generalization) or 100 (learnability)."""

BATCHES = Training(
    epochs=60, batch_size=32, data="fresh", samples_per_epoch=3200, learning_rate=1e-3, schedule="cosine",
    warmup_epochs=2, init="torch",
)  # fmt: skip
"""A better recipe: batches of 32, warm-up, and a learning rate that falls to zero; 6,000 steps on 192,000 strings."""


def learned_spec(
    task: Language,
    positions: str,
    log_length: Literal["none", "current"] | int = "none",
    eps: float = 1e-5,
    origin: Training = PUBLISHED,
) -> ModelSpec:
    """Return the published architecture for a language, with the given positions, log-length scaling and recipe."""
    layer = Layer(
        d_head=16, norm="post", norm_eps=eps, log_length=log_length, mlp=MLP(d_mlp=64),
        bias=Bias(q=True, k=True, v=True, o=True),
    )  # fmt: skip
    return ModelSpec(
        task=task.ref,
        d_model=16,
        direction="bidirectional",
        layers=(layer, layer),
        positions=positions,
        readout="scalar",
        readout_at="[CLS]",
        decision="sigmoid",
        origin=origin,
    )
