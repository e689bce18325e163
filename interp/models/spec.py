"""ModelSpec: the immutable description of a task model (task, architecture, origin), stored as TOML.

A spec has no device, path or seed. All defaults are defined here. This module imports neither torch nor pandas, so that
a sweep can read ten thousand specs per second.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import tomli_w
from pydantic import (
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    field_serializer,
    field_validator,
)

from interp.errors import SpecError, as_path, quoted, short
from interp.support.records import FrozenRecord, Natural, Scalar, TaskRef, sorted_pairs
from interp.support.views import view

SCHEMA = 1

Size: TypeAlias = Annotated[StrictInt, Field(ge=1, lt=2**40)]
Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]

RELATIVE_POSITIONS = ("rotary", "alibi")
"""Positions that change attention scores only, not the residual stream."""

PLAIN_POSITIONS = ("none", "learned", "sinusoidal", *RELATIVE_POSITIONS)
"""Built-in kinds of positions; any other value of `positions` names a registered formula of (i, n)."""


class Bias(FrozenRecord):
    """Whether each of attention's four projections has a bias."""

    q: StrictBool = False
    k: StrictBool = False
    v: StrictBool = False
    o: StrictBool = False


class MLP(FrozenRecord):
    """The MLP of a block: d_model -> d_mlp -> d_model.

    activation: "gelu" is exact (with erf), "gelu_new" is its tanh approximation, as in TransformerLens. gated: whether
    the MLP is (activation(x W_gate) * (x W_in) + b_in) W_out + b_out (Shazeer 2020) instead of activation(x W_in +
    b_in) W_out + b_out. bias: whether there are b_in and b_out.
    """

    d_mlp: Size
    activation: Literal["relu", "gelu", "gelu_new", "silu"] = "relu"
    gated: StrictBool = False
    bias: StrictBool = True


class Layer(FrozenRecord):
    """One block: attention and, optionally, an MLP.

    mixing: "dot" (scores from queries and keys) or "linear" (a learned max_length x max_length pattern).
    normalizer: turns scores into the attention pattern. norm: where layer norm is applied, if at all.
    mlp: the MLP, {"d_mlp": 64} for one with 64 neurons; see interp.models.spec.MLP.
    query_key, value_output: "learned" factors, or one "full" d_model x d_model matrix per head (d_head = d_model);
    value_output may also be the "identity", so that a head's output is the mixed residual stream.
    log_length: scores are multiplied by ln(n), where n is the "current" number of tokens or a fixed length.
    norm_kind: "layer" (layer norm) or "rms" (division by the root mean square, with a gain and no bias; Zhang &
    Sennrich 2019). key_value_heads: number of key and value heads, each shared by n_heads / key_value_heads queries
    (grouped-query attention; Ainslie et al. 2023); by default, every head has its own. query_key_norm: whether queries
    and keys pass an RMS norm with learned gains.

    Example:

        >>> interp.Layer(n_heads=4, d_head=8).factor(d_model=32)  # the scale of the scores
        0.3535533905932738
    """

    n_heads: Size = 1
    d_head: Size
    mixing: Literal["dot", "linear"] = "dot"
    normalizer: Literal["softmax", "none"] = "softmax"
    scale: Positive | Literal["inv_sqrt_d_head", "inv_sqrt_d_model"] = "inv_sqrt_d_head"
    log_length: Size | Literal["none", "current"] = "none"
    query_key: Literal["learned", "full"] = "learned"
    value_output: Literal["learned", "full", "identity"] = "learned"
    bias: Bias = Bias()
    mlp: MLP | None = None
    norm: Literal["none", "pre", "post"] = "none"
    norm_eps: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-5
    norm_kind: Literal["layer", "rms"] = "layer"
    key_value_heads: Size | None = None
    query_key_norm: StrictBool = False

    def factor(self, d_model: int) -> float:
        """Return `scale` as a number: scores are multiplied by it, and by ln(n) if log_length is set."""
        named = {"inv_sqrt_d_head": self.d_head**-0.5, "inv_sqrt_d_model": d_model**-0.5}
        return named[self.scale] if isinstance(self.scale, str) else self.scale

    def problems(self, d_model: int) -> list[str]:
        """List the problems of this layer for this d_model, one sentence each; empty if it can be built."""
        problems = []
        whole = [name for name in ("query_key", "value_output") if getattr(self, name) in ("full", "identity")]
        if whole and self.d_head != d_model:
            problems.append(
                f"{whole[0]} = {getattr(self, whole[0])!r} needs d_head = d_model = {d_model}, not {self.d_head}"
            )
        if self.mixing == "linear" and (self.log_length != "none" or self.bias.q or self.bias.k):
            problems.append("linear mixing has no queries and keys: log_length and the q and k biases do not apply")
        if self.log_length != "none" and self.normalizer == "none":
            problems.append("log_length needs normalizer = 'softmax', not 'none'")
        if self.value_output == "identity" and (self.bias.v or self.bias.o):
            problems.append("value_output = 'identity' has neither a v nor an o bias")
        if self.norm_kind != "layer" and self.norm == "none":
            problems.append(f"norm_kind = {self.norm_kind!r} needs norm = 'pre' or 'post'")
        if self.key_value_heads is not None and (
            self.key_value_heads >= self.n_heads or self.n_heads % self.key_value_heads
        ):
            problems.append(
                f"key_value_heads = {self.key_value_heads} must divide n_heads = {self.n_heads} and be smaller; leave "
                "it out if every head has its own keys and values"
            )
        learned = self.mixing == "dot" and self.query_key == "learned"
        if self.key_value_heads is not None and not (learned and self.value_output == "learned"):
            problems.append("key_value_heads needs mixing = 'dot' with learned queries, keys, values and outputs")
        if self.query_key_norm and not learned:
            problems.append("query_key_norm needs mixing = 'dot' with query_key = 'learned'")
        return problems

    @property
    def extras(self) -> tuple[str, ...]:
        """Names of parts that count space, token tables, compiled kernels and older proofs do not support."""
        plain = self.mlp is None or (self.mlp.activation in ("relu", "gelu") and not self.mlp.gated and self.mlp.bias)
        named = {
            "an RMS norm": self.norm_kind == "rms",
            "grouped keys and values": self.key_value_heads is not None,
            "a query-key norm": self.query_key_norm,
            "an MLP that is gated, lacks biases or has neither ReLU nor GELU": not plain,
        }
        return tuple(words for words, present in named.items() if present)


class Construction(FrozenRecord):
    """Exact weights from a proof: the construction's registered name, variant and arguments."""

    kind: Literal["construction"] = "construction"
    name: StrictStr
    variant: StrictStr = ""
    arguments: tuple[tuple[str, Scalar], ...] = ()

    _sorted = field_validator("arguments", mode="before")(lambda value: sorted_pairs(value))
    _as_mapping = field_serializer("arguments")(lambda self, value: dict(value))


class Training(FrozenRecord):
    """How a model is trained: initialization, optimizer, schedule and data order, but not the seed.

    init: "normal" (every matrix N(0, init_std^2), biases zero), "torch" (torch.nn's defaults: embeddings N(0, 1),
    linear maps and their biases uniform in +-1/sqrt(fan_in)) or "xavier" (every matrix uniform in +-sqrt(6 / (fan_in +
    fan_out)), the heads of a layer as one matrix; biases zero; Glorot & Bengio 2010).
    embedding_std: standard deviation of the initial embeddings, if init does not determine it. Behrens et al. (2024)
    freeze embeddings drawn from N(0, 1/d) plus noise of standard deviation .001, which gives sqrt(1/d + 1e-6).
    data: "fixed" passes over the task's data set, reshuffled each epoch; "fresh" draws samples_per_epoch new inputs;
    "exact" takes one step per epoch on the expected loss over the task's whole distribution (conditional tables).
    optimizer: "adam" adds weight_decay times a parameter to its gradient; "adamw" shrinks every parameter, biases
    included, by learning rate x weight_decay in each step (decoupled; Loshchilov & Hutter 2019).

    Example:

        >>> recipe = interp.Training(epochs=20, learning_rate=0.01, optimizer="adamw", weight_decay=0.1)
        >>> interp.build("count01/paper").spec.replace(origin=recipe).training.epochs
        20
    """

    kind: Literal["training"] = "training"
    epochs: Natural = 100
    batch_size: Size = 128
    data: Literal["fixed", "fresh", "exact"] = "fixed"
    samples_per_epoch: Size | None = None
    optimizer: Literal["adam", "adamw"] = "adam"
    learning_rate: Positive = 1e-3
    final_learning_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    warmup_epochs: Natural = 0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: Positive = 1e-8
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    init: Literal["normal", "torch", "xavier"] = "normal"
    init_std: Positive = 0.02
    embedding_std: Positive | None = None

    def problems(self) -> list[str]:
        problems = []
        if not all(0 <= beta < 1 for beta in self.betas):
            problems.append(f"betas = {self.betas}: both must lie in [0, 1)")
        if (self.data == "fresh") != (self.samples_per_epoch is not None):
            problems.append("samples_per_epoch is only for data = 'fresh', which needs it")
        return problems


class ModelSpec(FrozenRecord):
    """The full description of a task model, except for the seed.

    readout: "linear" (unembedding), "relu_mlp" (d_model -> readout_width -> n_out), "scalar" (one number).
    readout_at: "all" positions, the "first" or "last" position, or that of a token of the task, such as "=". If it is
    not set, build and train use the task's.
    positions: "none", "learned", "sinusoidal", "rotary", "alibi", or the name of a registered formula of (i, n).
    positions_enter: the "residual" stream, or only "attention" (always for rotary positions and ALiBi).
    rotary_base, rotary_dim, rotary_pairs: the angle of pair j at position i is i / base^(2j / dim); the first
    rotary_dim dimensions of queries and keys are rotated (None: all), where pair j is (j, j + dim/2) ("halves", as in
    GPT-NeoX and Llama) or (2j, 2j + 1) ("adjacent", as in GPT-J and Su et al. 2021).
    max_length: the number of positions with weights, for linear mixing and learned positions; with rotary positions,
    the longest input, if there is a limit.
    final_norm: "layer_norm" or "rms_norm" for a learned norm between the last block and the readout, with the norm_eps
    of the last layer (TransformerLens's ln_final).
    tied_embeddings: whether the unembedding is the transposed embedding.
    n_out: number of outputs (default: the task's).

    Example:

        >>> layer = interp.Layer(n_heads=2, d_head=4)
        >>> spec = interp.ModelSpec(task="count01", d_model=8, layers=(layer,), readout_at="=")
        >>> spec.symmetry
        'counts'
        >>> spec.replace(positions="learned").problems()
        ["positions = 'learned' needs max_length, the number of positions that have weights"]
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    task: TaskRef
    d_model: Size
    direction: Literal["causal", "bidirectional"] = "causal"
    embedding: Literal["learned", "frozen"] = "learned"
    layers: tuple[Layer, ...]
    positions: StrictStr = "none"
    positions_enter: Literal["residual", "attention"] = "residual"
    max_length: Size | None = None
    final_norm: Literal["none", "layer_norm", "rms_norm"] = "none"
    readout: Literal["linear", "relu_mlp", "scalar"] = "linear"
    readout_width: Size | None = None
    readout_bias: StrictBool = True
    readout_at: StrictStr = "all"
    n_out: Size | None = None
    decision: Literal["argmax", "sigmoid", "indicator", "set"] = "argmax"
    tolerance: Positive | None = None
    dtype: Literal["float64", "float32", "float16", "bfloat16"] = "float32"
    origin: Construction | Training | None = Field(default=None, discriminator="kind")
    tied_embeddings: StrictBool = False
    rotary_base: Positive = 10_000.0
    rotary_dim: Size | None = None
    rotary_pairs: Literal["halves", "adjacent"] = "halves"

    # ---------------------------------------------------------------- validation

    # the name of a task without parameters stands for it
    _as_task = field_validator("task", mode="before")(lambda task: {"name": task} if isinstance(task, str) else task)

    def problems(self) -> list[str]:
        """List the problems of this spec, one sentence each; empty if it can be built."""
        problems = [] if self.layers else ["layers is empty: a task model has at least one"]
        problems += [
            f"layer {i}: {problem}" for i, layer in enumerate(self.layers) for problem in layer.problems(self.d_model)
        ]
        if len({(layer.n_heads, layer.d_head) for layer in self.layers}) > 1:
            problems.append(
                "all layers share n_heads and d_head (TransformerLens has one of each); pad with zero heads"
            )
        if len({layer.norm for layer in self.layers}) > 1:
            problems.append("all layers share one norm: none, pre or post")
        if len({(layer.norm_kind, layer.key_value_heads, layer.query_key_norm) for layer in self.layers}) > 1:
            problems.append("all layers share norm_kind, key_value_heads and query_key_norm")
        sized = self.positions == "learned" or any(layer.mixing == "linear" for layer in self.layers)
        if sized and self.max_length is None:
            what = "positions = 'learned'" if self.positions == "learned" else "mixing = 'linear'"
            problems.append(f"{what} needs max_length, the number of positions that have weights")
        if not sized and self.max_length is not None and self.positions != "rotary":
            problems.append("max_length is only for linear mixing, learned positions and rotary ones")
        if self.direction == "causal" and any(layer.mixing == "linear" for layer in self.layers):
            problems.append("linear mixing needs direction = 'bidirectional'")
        formula = self.positions not in PLAIN_POSITIONS
        if self.direction == "causal" and (formula or any(layer.log_length == "current" for layer in self.layers)):
            problems.append(
                "log_length = 'current' and formula positions depend on the whole length, which a causal model "
                "does not know: they need direction = 'bidirectional'"
            )
        problems += self._relative_problems()
        if self.layers and self.layers[0].norm != "none" and self.final_norm != "none":
            kind = self.layers[0].norm_kind
            if self.final_norm != f"{kind}_norm":
                problems.append(f"final_norm = {self.final_norm!r} does not go with layers of norm_kind = {kind!r}")
        if (self.readout == "relu_mlp") != (self.readout_width is not None):
            problems.append("readout_width goes with readout = 'relu_mlp', and only with it")
        if self.tied_embeddings and self.readout != "linear":
            problems.append(f"tied_embeddings goes with readout = 'linear', not {self.readout!r}")
        if self.readout == "relu_mlp" and not self.readout_bias:
            problems.append("readout = 'relu_mlp' always has its biases; leave readout_bias out")
        if self.readout == "scalar" and self.n_out not in (None, 1):
            problems.append(f"readout = 'scalar' has one output, not n_out = {self.n_out}")
        if (self.readout == "scalar") != (self.decision not in ("argmax", "set")):
            problems.append(f"decision = {self.decision!r} does not fit readout = {self.readout!r}")
        if (self.decision == "indicator") != (self.tolerance is not None):
            problems.append("tolerance goes with decision = 'indicator', and only with it")
        return problems + (self.origin.problems() if isinstance(self.origin, Training) else [])

    def _relative_problems(self) -> list[str]:
        """List the problems of positions that enter attention."""
        problems, relative = [], self.positions in RELATIVE_POSITIONS
        if relative and self.positions_enter != "attention":
            problems.append(f"positions = {self.positions!r} enter only attention: set positions_enter = 'attention'")
        if self.positions_enter == "attention" and not relative and self.positions != "learned":
            problems.append(
                f"positions_enter = 'attention' needs learned, rotary or ALiBi positions, not {self.positions!r}"
            )
        plain = all(layer.mixing == "dot" and layer.query_key == "learned" for layer in self.layers)
        if relative and not plain:
            problems.append(f"positions = {self.positions!r} need mixing = 'dot' with learned queries and keys")
        if self.positions == "alibi" and (
            self.direction != "causal" or any(layer.normalizer != "softmax" for layer in self.layers)
        ):
            problems.append("positions = 'alibi' need direction = 'causal' and normalizer = 'softmax'")
        rotary = self.rotary_base != 10_000.0 or self.rotary_dim is not None or self.rotary_pairs != "halves"
        if rotary and self.positions != "rotary":
            problems.append("rotary_base, rotary_dim and rotary_pairs go with positions = 'rotary', and only with it")
        for layer in self.layers if self.positions == "rotary" else ():
            turned = self.rotary_dim or layer.d_head
            if turned % 2 or turned > layer.d_head:
                problems.append(
                    f"rotary_dim = {turned} must be even and at most d_head = {layer.d_head}: pairs of dimensions are "
                    "rotated"
                )
                break
        return problems

    def check(self) -> ModelSpec:
        """Return this spec. Raises SpecError with all of its problems."""
        if problems := self.problems():
            raise SpecError(problems)
        return self

    # ---------------------------------------------------------------- derived, never stored

    @property
    def symmetry(self) -> Literal["counts", "distinct_tokens", "slots", "position_codes", "none"]:
        """The symmetry of the outputs, which engines, certificates and measures use.

        counts: an output depends only on the token at its position and on the count of each token up to it.
        distinct_tokens: the same over the whole sequence, in every layer: equal tokens have equal residual streams.
        slots: one layer of linear mixing: before the readout, an output is a sum of one term per position.
        position_codes: positions with the same token and position code have equal residual streams.
        """
        if any(layer.mixing == "linear" for layer in self.layers):
            return "slots" if len(self.layers) == 1 and self.positions == "none" else "none"
        if self.positions == "none":
            if self.direction == "bidirectional":
                return "distinct_tokens"
            return "counts" if len(self.layers) == 1 else "none"
        formula = self.positions not in PLAIN_POSITIONS
        return "position_codes" if formula and self.direction == "bidirectional" else "none"

    @property
    def additive_residual(self) -> bool:
        """Whether the last residual stream is the sum of the parts' outputs (not with post-layer-norm)."""
        return all(layer.norm != "post" for layer in self.layers)

    @property
    def linear_readout(self) -> bool:
        """Whether logits are an affine function of the last residual stream (not with a final norm or ReLU readout)."""
        return self.readout != "relu_mlp" and self.final_norm == "none"

    @property
    def extras(self) -> tuple[str, ...]:
        """Parts that count space, token tables, compiled kernels and older proofs do not know, in words."""
        parts = [words for layer in self.layers for words in layer.extras]
        parts += ["a final RMS norm"] * (self.final_norm == "rms_norm") + ["tied embeddings"] * self.tied_embeddings
        parts += [f"{self.positions} positions"] * (self.positions in RELATIVE_POSITIONS)
        return tuple(dict.fromkeys(parts))

    @property
    def training(self) -> Training:
        """The training recipe, or the default recipe if the origin is not a training."""
        return self.origin if isinstance(self.origin, Training) else Training()

    # ---------------------------------------------------------------- identity and text

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data without default values, so that new fields with defaults do not change ids."""
        plain = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        if self.origin is not None:
            plain["origin"]["kind"] = self.origin.kind
        for owner, empty in (("task", "parameters"), ("origin", "arguments")):
            if not plain.get(owner, {}).get(empty, True):
                del plain[owner][empty]
        return plain

    @property
    def id(self) -> str:
        """Slug and hash, e.g. count01-d32-h16-0a1b2c3d4e. Specs are equal if and only if their ids are equal."""
        canonical = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        heads = self.layers[0].n_heads if self.layers else 0
        return f"{self.task.name}-d{self.d_model}-h{heads}-{hashlib.sha256(canonical.encode()).hexdigest()[:10]}"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelSpec:
        """Make a spec from plain data. Raises SpecError with all problems, and for an unknown schema."""
        if not isinstance(data, Mapping):
            raise SpecError([f"a spec is a table of fields, not {quoted(data)}"])
        schema = data.get("schema", SCHEMA)
        if schema != SCHEMA:
            raise SpecError(
                [f"schema {quoted(schema)} is not known to this version of interp, which reads schema {SCHEMA}"]
            )
        return cls(**data)

    def _repr_html_(self) -> str:
        """Show the values that differ from the defaults."""
        rows = [
            (name, json.dumps(value, ensure_ascii=False))
            for name, value in self.to_dict().items()
            if name not in ("layers", "schema")
        ]
        layers = self.to_dict().get("layers", [])
        rows += [(f"layer {number}", json.dumps(layer)) for number, layer in enumerate(layers[:6])]
        rows += [("layers", f"{len(layers)} in all")] * (len(layers) > 6)
        return view(f"ModelSpec {self.id}", rows)

    def to_toml(self) -> str:
        """Convert to TOML text, which from_toml reads from a file."""
        return tomli_w.dumps({"schema": SCHEMA, **self.to_dict()})

    @classmethod
    def from_toml(cls, path: str | Path) -> ModelSpec:
        """Read a spec from a file like models/*/*/model.toml, whose table [zoo] is not part of the spec."""
        data = read_toml(as_path(path, "a spec"))
        data.pop("zoo", None)
        try:
            return cls.from_dict(data)
        except SpecError as error:
            raise SpecError(error.problems, str(path)) from None

    def replace(self, **changes: Any) -> ModelSpec:
        """Return a validated copy with changed fields (model_copy would not validate)."""
        plain = {name: getattr(self, name) for name in self.model_fields_set if name != "schema_version"}
        return type(self)(**{**plain, **changes})

    def read_as(self, readout: str) -> ModelSpec:
        """Return this spec, with readout_at = readout if it is not set."""
        return self if "readout_at" in self.model_fields_set or readout == "all" else self.replace(readout_at=readout)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file. Raises SpecError, in one sentence, if it cannot be read."""
    return plain_data(path, "TOML", tomllib.loads)


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON file with an object. Raises SpecError, in one sentence, if it cannot be read."""
    data = plain_data(path, "JSON", json.loads)
    if not isinstance(data, dict):
        raise SpecError([f"{short(path)} must contain a JSON object, not {type(data).__name__}"])
    return data


MAX_TEXT = 2**20
"""Largest TOML or JSON file, in bytes; specs and grids have a few thousand."""


def plain_data(path: str | Path, kind: str, parse: Callable[[str], Any]) -> Any:
    """Read a text file of plain data. Raises SpecError, in one sentence, if it cannot be read."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # reading a pipe or a device might never end
            raise SpecError([f"{short(path)} is not a regular file"])
        if path.stat().st_size > MAX_TEXT:
            raise SpecError(
                [f"{short(path)} has {path.stat().st_size:,} bytes; a {kind} file has at most {MAX_TEXT:,}"]
            )
        return parse(path.read_text(encoding="utf-8"))
    except SpecError:
        raise
    except FileNotFoundError:
        raise SpecError([f"no such file: {short(path)}"]) from None
    except RecursionError:
        raise SpecError([f"{short(path)} is not a readable {kind} file: it is nested too deeply"]) from None
    except (OSError, ValueError, MemoryError) as error:  # numbers of 5,000 digits are ValueErrors
        raise SpecError([f"{short(path)} is not a readable {kind} file: {error}"]) from None
