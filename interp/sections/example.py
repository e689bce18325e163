"""The attention patterns of all heads on one short input."""

from interp.measures.results import tidy
from interp.measures.runs import activations
from interp.report import Report
from interp.report import figures as draw
from interp.report.aim import inputs
from interp.report.aim import tokens as token_ids
from interp.sections._shared import weights
from interp.sections.base import Study, section
from interp.tasks import Batch

LONGEST, MOST_HEADS = 40, 32


def needs(study: Study) -> str | None:
    """Require few enough heads and tokens to draw."""
    heads = study.model.cfg.n_heads
    if heads > MOST_HEADS:
        return f"the patterns of {heads} heads are too many to draw"
    batch = study.task.example
    if batch is None:
        return f"task {study.task.name} gives no example"
    length = int(batch.lengths[0])
    if length == 1:
        return "the example is a single token, so heads have nothing else to attend to"
    if study.spec is not None and study.spec.max_length is not None and length > LONGEST:
        return f"the shortest example has {length} tokens, too many to draw"
    return None


@section("example", title="Attention on one input", order=450, block="where", needs=needs)
def make(study: Study, report: Report) -> None:
    """Show the attention patterns of every layer and head."""
    batch = study.task.example
    assert batch is not None
    width = min(LONGEST, int(batch.lengths[0]))
    if study.spec is not None and study.spec.max_length is not None:
        width = batch.tokens.shape[1]  # linear mixing has weights for one length
    tokens = batch.tokens[:, :width]
    short = Batch(tokens, batch.lengths.clamp(max=width), batch.labels)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(study.model.cfg.n_layers)]
    _, seen = activations(study.subject, short, names)
    shown = min(width, int(short.lengths[0]))  # without padding
    words = [f"{i}: {study.task.vocabulary[int(t)]}" for i, t in enumerate(tokens[0, :shown])]
    report.heading("Attention on one input", f"The input is {study.task.format(tokens[0, :shown])}.")
    for layer, name in enumerate(names):
        pattern = seen[name][0, :, :shown, :shown].double().cpu()
        heads = [f"{layer}.{head}" for head in range(len(pattern))]
        frame = tidy(pattern, "value", head=heads, query=words, key=words)
        report.add_figure(
            f"attention_layer_{layer}",
            inputs(draw.circuit(frame, color_title=weights(study)), "tokens", token_ids(tokens[0].tolist())),
            f"Rows: the query token; columns: the token it attends to (layer {layer}).",
        )
