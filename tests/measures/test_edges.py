"""Path patching against a forward written out by hand, edge by edge."""

import copy

import pytest
import torch
from standins import NAMES, padding_hooks, read_of, standin

import interp
from interp.errors import InterpError, UnsupportedError
from interp.measures import minimal_pairs, runs
from interp.measures.edges import Edge, check_edges, edges, nodes, path_patching, run_edges
from interp.models.subject import Subject


class ByHand:
    """The model as nodes: out(node, input stream) and what each read, with nothing of interp."""

    def __init__(self, name: str, batch: interp.Batch) -> None:
        self.name, self.batch, self.subject = name, batch, standin(name)
        self.model, self.cfg = self.subject.model, self.subject.model.cfg

    def head(self, layer: int, head: int, stream: torch.Tensor) -> torch.Tensor:
        attn = self.model.blocks[layer].attn
        x = self.model.blocks[layer].ln1(stream) if self.cfg.normalization_type else stream
        q, k, v = (x @ getattr(attn, f"W_{w}")[head] + getattr(attn, f"b_{w}")[head] for w in "QKV")
        scores = q @ k.transpose(1, 2) / attn.attn_scale
        length = x.shape[1]
        hidden = ~self.batch.attention_mask[:, None, :].expand(-1, length, -1)
        if self.cfg.attention_dir == "causal":
            hidden = hidden | torch.ones(length, length).triu(1).bool()
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v @ attn.W_O[head]

    def mlp(self, layer: int, stream: torch.Tensor) -> torch.Tensor:
        block = self.model.blocks[layer]
        return block.mlp(block.ln2(stream) if self.cfg.normalization_type else stream)

    def output(self, stream: torch.Tensor) -> torch.Tensor:
        x = self.model.ln_final(stream) if self.cfg.normalization_type else stream
        return read_of(self.name, x @ self.model.W_U + self.model.b_U)

    def run(self, carried, embedding: torch.Tensor) -> tuple[dict, torch.Tensor]:  # type: ignore[no-untyped-def]
        """carried(sender, receiver, value) -> value; what every node wrote, and the output."""
        wrote = {"embedding": embedding}

        def stream(receiver: str, layer: int, senders: list[str]) -> torch.Tensor:
            biases = sum(self.model.blocks[i].attn.b_O for i in range(layer))
            return sum(carried(s, receiver, wrote[s]) for s in senders) + biases

        for layer in range(self.cfg.n_layers):
            before = list(wrote)
            for head in range(self.cfg.n_heads):
                me = f"head {layer}.{head}"
                wrote[me] = self.head(layer, head, stream(me, layer, before))
            if not self.cfg.attn_only:
                me = f"MLP {layer}"
                wrote[me] = self.mlp(layer, stream(me, layer + 1, list(wrote)))
        return wrote, self.output(stream("output", self.cfg.n_layers, list(wrote)))


def embedding(name: str, batch: interp.Batch) -> torch.Tensor:
    model = standin(name).model
    return model.embed(batch.tokens) + model.pos_embed(batch.tokens)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thinned(2)
def test_every_edge_by_hand(name) -> None:
    subject = standin(name)
    pairs = minimal_pairs.make_pairs(subject, 8, seed=1)
    hand = ByHand(name, pairs.corrupted)  # pairs of one token have the same padding
    clean, clean_out = hand.run(lambda s, r, value: value, embedding(name, pairs.clean))
    base, base_out = hand.run(lambda s, r, value: value, embedding(name, pairs.corrupted))
    torch.testing.assert_close(
        base_out, read_of(name, subject.model.run_with_hooks(
            pairs.corrupted.tokens, fwd_hooks=padding_hooks(subject.model, pairs.corrupted))), rtol=0, atol=1e-4
    )  # fmt: skip
    right, wrong = pairs.clean.labels.flatten(), pairs.corrupted.labels.flatten()
    differ, rows = right != wrong, torch.arange(len(right))

    def lean(out: torch.Tensor) -> float:
        flat = out.flatten(0, -2)
        return float((flat[rows, right] - flat[rows, wrong])[differ].mean())

    table = path_patching(subject, pairs).to_frame()
    assert len(table) == len(edges(subject))
    for row in table.itertuples():
        # Freeze all but the receiver at the corrupted run; then only the receiver's change goes on.
        def only(s: str, r: str, value: torch.Tensor, row: object = row) -> torch.Tensor:
            return clean[s] if (s, r) == (row.sender, row.receiver) else base[s]

        wrote, out = hand.run(only, embedding(name, pairs.corrupted))
        if row.receiver != "output":
            changed = wrote[row.receiver]

            def onward(s: str, r: str, value: torch.Tensor, me: str = row.receiver, new: object = changed) -> object:
                return new if s == me else value

            _, out = hand.run(onward, embedding(name, pairs.corrupted))
        wanted = (lean(out) - lean(base_out)) / (lean(clean_out) - lean(base_out))
        assert row.recovered == pytest.approx(wanted, abs=2e-4), (row.sender, row.receiver)


@pytest.mark.parametrize("name", NAMES)
def test_circuits_of_edges_by_hand(name) -> None:
    subject = standin(name)
    batch, other = subject.task.sample(6, seed=1), subject.task.sample(6, seed=9)
    other = (
        subject.task.batch(
            torch.where(batch.attention_mask, torch.where(other.attention_mask, other.tokens, 1), batch.tokens)
        )
        if name == "ends"
        else other
    )
    hand = ByHand(name, batch)
    theirs, _ = hand.run(lambda s, r, value: value, embedding(name, other))
    every = edges(subject)
    kept = every[::2]
    names = {(str(edge.sender), str(edge.receiver)) for edge in kept}
    _, wanted = hand.run(lambda s, r, value: value if (s, r) in names else theirs[s], embedding(name, batch))
    instead = {node: theirs[str(node)] for node in nodes(subject)[:-1]}
    found = run_edges(subject, batch, kept, instead)
    where = runs.reads_of(subject, batch)
    torch.testing.assert_close(found, wanted.flatten(0, -2), rtol=0, atol=1e-4)
    whole = run_edges(subject, batch, every, instead)
    torch.testing.assert_close(whole, where.pick(runs.forward(subject, batch)), rtol=0, atol=1e-4)


def test_what_is_no_edge() -> None:
    subject = standin("ends")
    assert check_edges(subject, [("head 0.1", "MLP 0")]) == [Edge(nodes(subject)[2], nodes(subject)[3])]
    with pytest.raises(InterpError, match="there is no edge from MLP 0 to head 0"):
        check_edges(subject, [("MLP 0", "head 0.1")])
    with pytest.raises(InterpError, match="unknown part 'head 9"):
        check_edges(subject, [("head 9.9", "output")])
    with pytest.raises(UnsupportedError, match="after post-layer-norm"):
        edges(Subject.of(interp.load("languages/first-learned")))
    short = copy.deepcopy(subject)
    short.model.cfg.positional_embedding_type = "shortformer"
    with pytest.raises(UnsupportedError, match="shortformer adds positions to what queries and keys read"):
        edges(short)


def test_runs_that_do_not_differ_have_nothing_to_recover() -> None:
    """Answers that do not depend on the input, one of them more likely than another."""
    subject = copy.deepcopy(standin("recall"))
    subject.model.unembed.W_U.zero_()
    subject.model.unembed.b_U.copy_(torch.arange(3) ** 2)
    with pytest.raises(InterpError, match="do not differ"):
        path_patching(subject, minimal_pairs.make_pairs(standin("recall"), 6))


def test_all_edges_are_the_model_and_none_are_nothing() -> None:
    subject = standin("recall")
    test = subject.task.sample(60, seed=1)
    found = interp.evaluate_circuit(
        subject, edges=edges(subject), inputs=test, reference=subject.task.sample(50, "train"), mode="resample"
    )
    assert found.circuit.accuracy == found.model.accuracy == 1.0
    assert found.nothing.accuracy < 0.7
    assert found.faithfulness == pytest.approx(1.0, abs=1e-4)
