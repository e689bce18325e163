"""Models as other libraries save them, one file or folder of a few kB per shape, each with its task and its library's
own forward pass.

    gpt2           transformers' GPT-2: which of ( ) end may follow, as a set
    llama          transformers' Llama: sorts up to four letters, token by token
    qwen3          transformers' Qwen 3: a b or an end after any a, never three b in a row, as a set
    gpt_neox       transformers' GPT-NeoX: are most of seven bits ones? at the last one
    nanogpt        nanoGPT's ckpt.pt: adds two digits, character by character, until a newline
    encoder        the state dict of a module around torch.nn.TransformerEncoder: the most frequent of three letters
    modular        plain tensors of older research code, multiplied from the left: addition modulo 7
    induction      plain tensors of EasyTransformer: what followed the last letter before
    adder          a module of its own with 346 parameters: adds two digits of two bits each, in reverse

`python tests/saved_models.py` trains and saves them again (two minutes). `python tests/saved_models.py table` reports
on each and prints shape, library, deviation from the library's logits, sections and seconds.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

import interp
from interp.report.items import Heading
from interp.tasks import IGNORED, Batch, Generates, NextSymbols, Questions, Task

FOLDER = Path(__file__).parent / "saved_models"
Forward = Callable[[Tensor], Tensor]

# ---------------------------------------------------------------- tasks


class Listed:
    """Inputs that one table of rows lists; samples are drawn from it."""

    rows: Tensor

    @property
    def n_inputs(self) -> int:
        return len(self.rows)

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        for part in self.rows.split(chunk):
            yield self.batch(part)  # type: ignore[attr-defined]

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        drawn = torch.randint(len(self.rows), (n,), generator=torch.Generator().manual_seed(seed))
        return self.batch(self.rows[drawn])  # type: ignore[attr-defined]


def strings(letters: range, length: int, first: int | None = None) -> Tensor:
    """All strings of a length, behind a first token or alone."""
    rows = torch.tensor(list(product(letters, repeat=length)))
    return rows if first is None else torch.cat([torch.full((len(rows), 1), first), rows], 1)


class Brackets(Listed, NextSymbols):
    """[BOS] and ten brackets: which of ( ) end may follow? Nothing may once a bracket closes that was not open."""

    name, vocabulary, symbols = "saved_brackets", ("[BOS]", "(", ")"), ("(", ")", "end")
    rows = strings(range(1, 3), 10, first=0)

    def allowed(self, tokens: Tensor) -> Tensor:
        depth = ((tokens == 1).int() - (tokens == 2).int()).cumsum(1)
        alive = depth.cummin(1).values >= 0
        return torch.stack([alive, alive & (depth > 0), alive & (depth == 0)], -1)


class FewB(Listed, NextSymbols):
    """[BOS] and ten letters: a may always follow, b unless two stand before it, and after an a the string may end."""

    name, vocabulary, symbols = "saved_few_b", ("[BOS]", "a", "b"), ("a", "b", "end")
    rows = strings(range(1, 3), 10, first=0)

    def allowed(self, tokens: Tensor) -> Tensor:
        is_b = functional.pad((tokens == 2).int(), (2, 0))
        run = is_b[:, 2:] + is_b[:, 1:-1] * is_b[:, 2:]
        alive = (run + is_b[:, :-2] * is_b[:, 1:-1] * is_b[:, 2:]).cummax(1).values < 3
        return torch.stack([alive, alive & (run < 2), alive & (tokens == 1)], -1)


class Sorting(Questions):
    """One to four letters of abc and '=': the letters in order, then '.'."""

    name, vocabulary, pad = "saved_sorting", ("a", "b", "c", "=", ".", "_"), "_"
    generates = Generates(start="=", stop=".", length=5)

    def questions(self) -> list[str]:
        return ["".join(word) + "=" for n in range(1, 5) for word in product("abc", repeat=n)]

    def answer(self, question: str) -> str:
        return "".join(sorted(question[:-1])) + "."


class Sums(Questions):
    """Two digits: '3+9=' is answered '12' and a newline, which is written $ here: a task's tokens hold no spaces."""

    name, vocabulary, pad = "saved_sums", (*"0123456789", "+", "=", "$", "_"), "_"
    generates = Generates(start="=", stop="$", length=3)

    def questions(self) -> list[str]:
        return [f"{a}+{b}=" for a in range(10) for b in range(10)]

    def answer(self, question: str) -> str:
        return str(sum(map(int, question[:-1].split("+")))) + "$"


class AtTheEnd(Listed, Task):
    """Rows of one length with one answer at the last token."""

    readout = "last"

    def label(self, tokens: Tensor) -> Tensor:
        raise NotImplementedError

    def batch(self, tokens: Tensor) -> Batch:
        return Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), self.label(tokens).long())

    def answers(self, classes: Tensor, tokens: Tensor) -> Tensor:
        return classes


class MostlyOnes(AtTheEnd):
    """Seven bits: are most of them ones?"""

    name, vocabulary, n_out = "saved_mostly_ones", ("0", "1"), 2
    answer_words = ("no", "yes")
    rows = strings(range(2), 7)

    def label(self, tokens: Tensor) -> Tensor:
        return tokens.sum(1) > 3


class MostFrequent(AtTheEnd):
    """Six letters: which of a, b, c is most frequent (the first of equals)?"""

    name, vocabulary, n_out = "saved_most_frequent", ("a", "b", "c"), 3
    answer_words = ("a", "b", "c")
    rows = strings(range(3), 6)

    def label(self, tokens: Tensor) -> Tensor:
        return torch.stack([(tokens == i).sum(1) for i in range(3)], 1).argmax(1)


class ModularSum(AtTheEnd):
    """a b =: what is a + b modulo 7?"""

    name, vocabulary, n_out = "saved_modular_sum", (*"0123456", "="), 7
    answer_words = tuple("0123456")
    rows = torch.tensor([[a, b, 7] for a in range(7) for b in range(7)])

    def label(self, tokens: Tensor) -> Tensor:
        return (tokens[:, 0] + tokens[:, 1]) % 7


class Repeats(AtTheEnd):
    """Four different letters of abcde and one of the first three again: which letter followed it?"""

    name, vocabulary, n_out = "saved_repeats", tuple("abcde"), 5
    rows = torch.tensor(
        [[*word, word[i]] for word in product(range(5), repeat=4) if len({*word}) == 4 for i in range(3)]
    )

    def label(self, tokens: Tensor) -> Tensor:
        return tokens.gather(1, (tokens[:, :4] == tokens[:, 4:]).int().argmax(1, keepdim=True) + 1)[:, 0]


class Bits(Questions):
    """Two numbers of two bits, least bit first: '10+11=' is answered '001', one bit after the other."""

    name, vocabulary, pad = "saved_bits", ("0", "1", "+", "=", "_"), "_"
    answer_words = ("0", "1")
    generates = Generates(start="=", stop=None, length=3)

    def questions(self) -> list[str]:
        return [f"{a:02b}"[::-1] + "+" + f"{b:02b}"[::-1] + "=" for a in range(4) for b in range(4)]

    def answer(self, question: str) -> str:
        return f"{sum(int(part[::-1], 2) for part in question[:-1].split('+')):03b}"[::-1]


# ---------------------------------------------------------------- modules of others


class Nano(nn.Module):
    """nanoGPT's shape, written from its description: pre-norm, GELU, tied output layer, biases or none."""

    def __init__(self, n_layer: int, n_head: int, n_embd: int, block_size: int, vocab_size: int, bias: bool) -> None:
        super().__init__()
        self.n_head = n_head
        parts = {"wte": nn.Embedding(vocab_size, n_embd), "wpe": nn.Embedding(block_size, n_embd)}
        self.transformer = nn.ModuleDict(parts | {"ln_f": nn.LayerNorm(n_embd, bias=bias)})
        blocks = []
        for _ in range(n_layer):
            block = nn.ModuleDict({f"ln_{i}": nn.LayerNorm(n_embd, bias=bias) for i in (1, 2)})
            block["attn"] = nn.ModuleDict(
                {"c_attn": nn.Linear(n_embd, 3 * n_embd, bias=bias), "c_proj": nn.Linear(n_embd, n_embd, bias=bias)}
            )
            block["mlp"] = nn.ModuleDict(
                {"c_fc": nn.Linear(n_embd, 4 * n_embd, bias=bias), "c_proj": nn.Linear(4 * n_embd, n_embd, bias=bias)}
            )
            blocks.append(block)
        self.transformer["h"] = nn.ModuleList(blocks)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = parts["wte"].weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.transformer["wte"](tokens) + self.transformer["wpe"](torch.arange(tokens.shape[1]))
        for block in self.transformer["h"]:  # type: ignore[attr-defined]
            q, k, v = (
                part.unflatten(-1, (self.n_head, -1)).transpose(1, 2)
                for part in block["attn"]["c_attn"](block["ln_1"](x)).chunk(3, -1)
            )
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + block["attn"]["c_proj"](mixed)
            x = x + block["mlp"]["c_proj"](functional.gelu(block["mlp"]["c_fc"](block["ln_2"](x))))
        return self.lm_head(self.transformer["ln_f"](x))


class Encoder(nn.Module):
    """An embedding, a table of positions, torch's encoder and an output layer."""

    def __init__(
        self, first: bool, activation: str, norm: bool, vocabulary: int = 5, layers: int = 2, length: int = 9
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 8)
        self.pos = nn.Parameter(torch.randn(1, length, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, activation, norm_first=first, batch_first=True)
        self.encoder = nn.TransformerEncoder(
            layer, layers, nn.LayerNorm(8) if norm else None, enable_nested_tensor=False
        )
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens) + self.pos[:, : tokens.shape[1]], mask=mask))


class Plain(nn.Module):
    """Tensors in a dict, multiplied from the left as the code of older papers does. No norms; MLP with ReLU or none.

    easy: EasyTransformer's layout, where W_O is kept per head, and positions and the unembedding lie the other way.
    """

    def __init__(
        self, easy: bool, d: int, heads: int, head: int, mlp: int, layers: int, length: int, vocab: int, out: int
    ) -> None:
        super().__init__()
        self.easy, self.heads, self.layers, self.mlp = easy, heads, layers, mlp
        shapes: dict[str, tuple[int, ...]] = {
            "embed.W_E": (d, vocab),
            "pos_embed.W_pos": (d, length) if easy else (length, d),
        }
        for i in range(layers):
            at = f"blocks.{i}"
            shapes |= {f"{at}.attn.W_{name}": (heads, head, d) for name in "QKV"}
            shapes[f"{at}.attn.W_O"] = (heads, d, head) if easy else (d, heads * head)
            if mlp:
                shapes |= {f"{at}.mlp.W_in": (mlp, d), f"{at}.mlp.b_in": (mlp,)}
                shapes |= {f"{at}.mlp.W_out": (d, mlp), f"{at}.mlp.b_out": (d,)}
        shapes["unembed.W_U"] = (out, d) if easy else (d, out)
        self.names = list(shapes)
        self.tensors = nn.ParameterList([0.4 * torch.randn(*shape) for shape in shapes.values()])

    def named(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in zip(self.names, self.tensors)}

    def forward(self, tokens: Tensor) -> Tensor:
        w = dict(zip(self.names, self.tensors))
        n = tokens.shape[1]
        positions = w["pos_embed.W_pos"].T if self.easy else w["pos_embed.W_pos"]
        x = w["embed.W_E"].T[tokens] + positions[:n]
        for i in range(self.layers):
            at = f"blocks.{i}"
            q, k, v = (torch.einsum("hcd,bnd->bhnc", w[f"{at}.attn.W_{name}"], x) for name in "QKV")
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            if self.easy:
                x = x + torch.einsum("hdc,bhnc->bnd", w[f"{at}.attn.W_O"], mixed)
            else:
                x = x + mixed.transpose(1, 2).flatten(2) @ w[f"{at}.attn.W_O"].T
            if self.mlp:
                hidden = functional.relu(x @ w[f"{at}.mlp.W_in"].T + w[f"{at}.mlp.b_in"])
                x = x + hidden @ w[f"{at}.mlp.W_out"].T + w[f"{at}.mlp.b_out"]
        return x @ (w["unembed.W_U"].T if self.easy else w["unembed.W_U"])


class Adder(nn.Module):
    """Somebody's adder of 346 parameters: one layer, two heads, RMS norms, no biases, tied embedding, squared names."""

    def __init__(self) -> None:
        super().__init__()
        self.tok, self.pos = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(9, 6))
        self.g1, self.g2, self.g3 = (nn.Parameter(torch.ones(6)) for _ in range(3))
        self.qkv, self.proj = nn.Parameter(0.4 * torch.randn(18, 6)), nn.Parameter(0.4 * torch.randn(6, 6))
        self.up, self.down = nn.Parameter(0.4 * torch.randn(8, 6)), nn.Parameter(0.4 * torch.randn(6, 8))

    def forward(self, tokens: Tensor) -> Tensor:
        norm = lambda x, g: x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * g  # noqa: E731
        x = self.tok[tokens] + self.pos[: tokens.shape[1]]
        q, k, v = (norm(x, self.g1) @ self.qkv.T).unflatten(-1, (3, 2, 3)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.transpose(1, 2).flatten(2) @ self.proj.T
        x = x + functional.gelu(norm(x, self.g2) @ self.up.T) @ self.down.T
        return norm(x, self.g3) @ self.tok.T


def as_lens(w: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The adder's weights under TransformerLens's names, and the config that expresses it: its owner writes this."""
    q, k, v = w["qkv"].reshape(3, 2, 3, 6).transpose(2, 3)
    attn = {"W_Q": q, "W_K": k, "W_V": v, "W_O": w["proj"].T.reshape(2, 3, 6)}
    zero = {"b_Q": torch.zeros(2, 3), "b_K": torch.zeros(2, 3), "b_V": torch.zeros(2, 3), "b_O": torch.zeros(6)}
    mlp = {"W_in": w["up"].T, "b_in": torch.zeros(8), "W_out": w["down"].T, "b_out": torch.zeros(6)}
    tensors = {"embed.W_E": w["tok"], "pos_embed.W_pos": w["pos"], "ln_final.w": w["g3"]}
    tensors |= {"unembed.W_U": w["tok"].T, "unembed.b_U": torch.zeros(4)}
    tensors |= {"blocks.0.ln1.w": w["g1"], "blocks.0.ln2.w": w["g2"]}
    tensors |= {f"blocks.0.attn.{name}": t for name, t in (attn | zero).items()}
    tensors |= {f"blocks.0.mlp.{name}": t for name, t in mlp.items()}
    config = {"n_layers": 1, "d_model": 6, "n_heads": 2, "d_head": 3, "d_mlp": 8, "n_ctx": 9, "d_vocab": 4,
              "act_fn": "gelu", "normalization_type": "RMS", "eps": 1e-6}  # fmt: skip
    return {name: tensor.contiguous() for name, tensor in tensors.items()}, config


# ---------------------------------------------------------------- shapes


@dataclass(frozen=True)
class Shape:
    """One way to save a model. make: the untrained original; save: as its library does; original: its forward pass on
    the task's own tokens and outputs, from the files alone; load: what interp.load is given beside path and task."""

    library: str
    task: Callable[[], Task]
    make: Callable[[], nn.Module]
    save: Callable[[Any, Path], None]
    original: Callable[[Path], Forward]
    load: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    steps: int = 1500
    reader: str = ""
    """What `interp inspect` calls the format; empty for a module that no reader knows."""

    def path(self, name: str) -> Path:
        return FOLDER / name / self.file

    def subject(self, name: str) -> Any:
        """What interp.load makes of it: the one call that a user writes."""
        if self.library == "its own module":
            tensors, config = as_lens(torch.load(self.path(name), weights_only=True))
            return interp.load(tensors, task=self.task(), config=config, **self.load)
        return interp.load(self.path(name), task=self.task(), **self.load)

    def deviation(self, name: str) -> float:
        """How far our logits lie from the original's on inputs of the task, relative to the largest."""
        return interp.check_conversion(self.original(self.path(name)), self.subject(name)).difference


def transformers_shape(
    config: str, kind: str, task: Callable[[], Task], reader: str, steps: int, load: dict[str, Any], **fields: Any
) -> Shape:
    def make() -> nn.Module:
        import transformers

        marks = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
        return getattr(transformers, kind)(getattr(transformers, config)(**marks, **fields))

    def original(path: Path) -> Forward:
        import transformers

        made = getattr(transformers, kind).from_pretrained(path).eval()
        return lambda tokens: made(tokens).logits

    save = lambda made, path: made.save_pretrained(path)  # noqa: E731
    return Shape("transformers", task, make, save, original, load, steps=steps, reader=reader)


def saved(make: Callable[[], nn.Module], path: Path) -> nn.Module:
    """A module with the state dict of a file."""
    made = make().eval()
    made.load_state_dict(torch.load(path, weights_only=True))
    return made


NANO: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 8, "vocab_size": 13, "bias": False}


def nano(path: Path) -> Forward:
    """nanoGPT's own way: the module of model_args, then its state dict."""
    found = torch.load(path, weights_only=True)
    args = {name: value for name, value in found["model_args"].items() if name != "dropout"}
    made = Nano(**args)
    made.load_state_dict({name.removeprefix("_orig_mod."): t for name, t in found["model"].items()})
    return made.eval()


def save_nano(made: Nano, path: Path) -> None:
    model = {f"_orig_mod.{name}": tensor for name, tensor in made.state_dict().items()}
    rest = {"optimizer": {"state": {}}, "iter_num": 1500, "best_val_loss": torch.tensor(0.01), "config": {"lr": 1e-2}}
    torch.save({"model": model, "model_args": NANO | {"dropout": 0.0}} | rest, path / "ckpt.pt")


def plain_shape(task: Callable[[], Task], reader: str, sizes: dict[str, Any], load: dict[str, Any]) -> Shape:
    make = lambda: Plain(**sizes)  # noqa: E731

    def original(path: Path) -> Forward:
        made = make()
        found = torch.load(path, weights_only=True)["model"]
        for name, tensor in zip(made.names, made.tensors):
            tensor.data = found[name]
        return made.eval()

    save = lambda made, path: torch.save({"model": made.named(), "epoch": 1500}, path / "final.pth")  # noqa: E731
    return Shape("research code", task, make, save, original, load, "final.pth", reader=reader)


GATED = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}
SHAPES: dict[str, Shape] = {
    "gpt2": transformers_shape("GPT2Config", "GPT2LMHeadModel", Brackets, "Hugging Face GPT-2", 1500, {"tokens":
        {"[BOS]": 3, "(": 0, ")": 1}, "outputs": {"(": 0, ")": 1, "end": 4}}, n_layer=1, n_embd=16, n_head=2,
        vocab_size=5, n_positions=12),
    "llama": transformers_shape("LlamaConfig", "LlamaForCausalLM", Sorting, "Hugging Face Llama", 1500, {"tokens":
        {"a": 1, "b": 2, "c": 3, "=": 4, ".": 5, "_": 0}}, num_hidden_layers=2, intermediate_size=24, vocab_size=6,
        **GATED),
    "qwen3": transformers_shape("Qwen3Config", "Qwen3ForCausalLM", FewB, "Hugging Face Qwen 3", 1000, {"tokens":
        {"[BOS]": 4, "a": 1, "b": 2}, "outputs": {"a": 1, "b": 2, "end": 3}}, num_hidden_layers=1,
        intermediate_size=16, vocab_size=5, head_dim=4, **GATED),
    "gpt_neox": transformers_shape("GPTNeoXConfig", "GPTNeoXForCausalLM", MostlyOnes, "Hugging Face GPT-NeoX", 1500,
        {"tokens": {"0": 1, "1": 2}, "outputs": {"no": 0, "yes": 3}}, num_hidden_layers=2, intermediate_size=32,
        vocab_size=4, hidden_size=16, num_attention_heads=2, max_position_embeddings=16, rotary_pct=0.5),
    "nanogpt": Shape("nanoGPT", Sums, lambda: Nano(**NANO), save_nano, nano, {"tokens": {c: i for i, c in
        enumerate("$+0123456789=")}}, "ckpt.pt", 2500, "nanoGPT checkpoint"),
    "encoder": Shape("torch.nn", MostFrequent, lambda: Encoder(False, "relu", False, 3, 1, 6), lambda made, path:
        torch.save(made.state_dict(), path / "encoder.pt"), lambda path: saved(lambda: Encoder(False, "relu", False,
        3, 1, 6), path), {"config": {"n_heads": 2, "causal": False}}, "encoder.pt", 1500,
        "torch.nn.TransformerEncoder"),
    "modular": plain_shape(ModularSum, "plain tensors, multiplied from the left", {"easy": False, "d": 16, "heads": 2,
        "head": 4, "mlp": 32, "layers": 1, "length": 3, "vocab": 8, "out": 7}, {"config": {"act_fn": "relu"}}),
    "induction": plain_shape(Repeats, "EasyTransformer state dict", {"easy": True, "d": 12, "heads": 2, "head": 6,
        "mlp": 0, "layers": 2, "length": 5, "vocab": 5, "out": 5}, {}),
    "adder": Shape("its own module", Bits, Adder, lambda made, path: torch.save(made.state_dict(), path / "adder.pt"),
        lambda path: saved(Adder, path), {"tokens": {"0": 0, "1": 1, "+": 2, "=": 3}}, "adder.pt", 2000),
}  # fmt: skip


# ---------------------------------------------------------------- making them, and a table of them


def train(shape: Shape, seed: int = 0) -> Any:
    """The original, trained on all inputs of its task in its own ids: sets by their signs, else by cross-entropy."""
    torch.manual_seed(seed)
    made, task = shape.make().train(), shape.task()
    batch = next(iter(task.inputs(100_000)))
    ids, outs = shape.load.get("tokens"), shape.load.get("outputs")
    tokens = batch.tokens if ids is None else torch.tensor([ids.get(w, 0) for w in task.vocabulary])[batch.tokens]
    columns = [(outs or ids or {}).get(word, i) for i, word in enumerate(task.answer_words)]
    classes, optimizer = task.classes(batch), torch.optim.Adam(made.parameters(), 1e-2)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, shape.steps)
    for _ in range(shape.steps):
        chosen = torch.randint(len(tokens), (64,))
        out = made(tokens[chosen])
        out = (out if isinstance(out, Tensor) else out.logits)[..., columns]
        if task.decision == "set":
            loss = functional.binary_cross_entropy_with_logits(out, task.allowed(batch.tokens[chosen]).float())  # type: ignore[attr-defined]
        else:
            loss = functional.cross_entropy(out.flatten(0, 1), classes[chosen].flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plan.step()
    print(f"loss {float(loss):.2g}", end="  ")
    return made.eval()


def make_all(names: list[str]) -> None:
    for name in names or SHAPES:
        shape, started = SHAPES[name], time.perf_counter()
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        shape.save(train(shape), folder)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{name}: {size:,} bytes, {time.perf_counter() - started:.0f} s")


def reported(name: str) -> dict[str, Any]:
    """One row of the table: the report of a shape from one call, and how far our logits lie from the original's."""
    shape, started = SHAPES[name], time.perf_counter()
    report = interp.analyze(shape.subject(name))
    seconds = time.perf_counter() - started
    return {
        "shape": name, "library": shape.library, "deviation": f"{shape.deviation(name):.1e}",
        "sections": sum(isinstance(item, Heading) for item in report.items),
        "certificate": report.facts["certificate"], "seconds": f"{seconds:.0f}",
    }  # fmt: skip


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["table"]:
        print(pd.DataFrame([reported(name) for name in sys.argv[2:] or SHAPES]).to_string(index=False))
    else:
        make_all(sys.argv[1:])
