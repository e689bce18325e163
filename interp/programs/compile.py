"""Compile a program to the weights of a transformer: the inverse of decompile.

**Stream.** Each variable has its own directions of the residual stream, one for each of its values, and its weights
are the components along them. Tokens and positions are embedded so.

**Heads.** The query of a position is the row of scores of its query's values, and a key is its key's values (or the
other way round, whichever is smaller), so scores are those of the program. NEVER becomes `sharp` below the lowest other
score: then a key that is not attended to has at most e^-sharp of the attention. A large `sharp` makes large weights,
which lose digits in float32, and a small one an error of at most length x e^-sharp in each share.

**Maps.** See neurons.

**Circuit.** Each step is in the first layer where its variables exist, and `part` of the step names it. Decoys are
further heads and neurons that read variables and write to directions of their own, which nothing reads. Dead neurons
read random sums of the whole stream, in parts that matter, too, and write to directions that nothing but they read.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, quoted
from interp.models.constructions import Construct, ConstructedWeights, construct, register_construction
from interp.models.spec import MLP, Construction, Layer, ModelSpec, Scalar
from interp.programs.language import Program
from interp.programs.neurons import Observed, neurons
from interp.programs.steps import NEVER, Evened, Head, Linear, Normed, Product, Step, Sums, Table
from interp.programs.task import ENDS, ProgramTask
from interp.programs.waves import Cosines, Waves

READ, WRITE = ("W_Q", "W_K", "W_V", "W_in", "W_U"), ("W_E", "W_pos", "W_O", "W_out", "b_out")
"""Matrices that read the residual stream, and tensors that are written to it."""
UNREAD = 4
"""Directions of the stream to which dead neurons write."""

if TYPE_CHECKING:
    from interp.models.architecture.task_model import TaskModel


def compile(
    program: Program | ProgramTask,
    *,
    shortest: int = 0,
    first: str = "",
    last: str = "",
    decoys: int = 0,
    dead: int = 0,
    rotate: int | None = None,
    noise: float = 0.0,
    sharp: float = 40.0,
    seed: int = 0,
) -> TaskModel:
    """Make the exact weights of a program, as a task model whose task is to give the program's answers.

    program: a Program, or its task with its inputs. shortest, first, last: which rows are inputs of a Program, as in
    task "program". decoys: number of further heads and tables that nothing reads, drawn from `seed`. dead: number of
    dead neurons in each layer, which nothing else reads, drawn from `seed`. rotate: seed of a random rotation of the
    residual stream. noise: standard deviation of Gaussian noise on all weights, drawn from
    `seed`. sharp: see the module. Steps of `model.task.program` name the parts that implement them; other parts are
    not used.

    Raises InterpError for maps that have no exact weights, and for answers that are decided by rounding.

    Example:

        >>> from interp.programs.task import ENDS
        >>> model = interp.compile(ENDS)
        >>> [step.part for step in model.task.program.steps]
        ['head 0.0', 'MLP 0']
        >>> model.predict(torch.tensor([[0, 1, 1], [0, 1, 0]])).tolist()
        [0, 1]
    """
    rows: dict[str, Any] = {"shortest": shortest, "first": first, "last": last}
    if isinstance(program, ProgramTask):
        rows, program = {name: program.parameters[name] for name in rows}, program.program
    if not isinstance(program, Program):
        raise InterpError(f"{quoted(program)} is not a program: give an interp.programs.language.Program")
    task = ProgramTask(program=placed(program).to_json(), **rows)
    return construct(
        "programs/compiled", program=task, decoys=decoys, dead=dead, rotate=rotate, noise=noise, sharp=sharp,
        draw_seed=seed,
    ).model()  # fmt: skip


@register_construction("programs/compiled")
def compiled(
    program: Any = None,
    decoys: int = 0,
    dead: int = 0,
    rotate: int | None = None,
    noise: float = 0.0,
    sharp: float = 40.0,
    draw_seed: int = 0,
) -> Construct:
    """A program of interp.programs in named one-hot directions: gives the program's answers.

    program: a Program, its JSON, or task "program" (default: whether the first and last token agree). Other arguments:
    see interp.compile.
    """
    text = program.to_json() if isinstance(program, Program) else program or ENDS.to_json()
    task = text if isinstance(text, ProgramTask) else ProgramTask(program=text)
    if not (decoys >= 0 and dead >= 0 and 0 <= noise < math.inf and 0 < sharp < math.inf):
        raise InterpError(
            f"decoys = {decoys}, dead = {dead} and noise = {noise} must be 0 or more, and sharp = {sharp} above 0"
        )
    program = placed(task.program)
    steps = (*program.steps, program.answer)
    if others := [step.name for step in steps if isinstance(step, Sums | Evened | Normed | Waves | Cosines)]:
        raise InterpError(
            f"{others[0]} holds numbers: only programs of heads, tables, products and largest sums compile"
        )
    if others := [step.name for step in program.steps if isinstance(step, Head) and step.total]:
        raise InterpError(f"{others[0]} has no softmax: only heads whose attention sums to one compile")
    if others := [step.name for step in program.steps if isinstance(step, Head) and step.scaled]:
        raise InterpError(f"{others[0]} has scores that grow with the length: only heads with fixed scores compile")
    generator = torch.Generator().manual_seed(draw_seed)
    whole = with_decoys(program, decoys, generator)
    seen = Observed(task, whole)
    directions = _directions(whole)
    tensors, layers = _tensors(whole, seen, directions, sharp)
    if dead:
        tensors, layers = with_dead(tensors, layers, dead, generator)
        directions = {name: torch.nn.functional.pad(rows, (0, UNREAD)) for name, rows in directions.items()}
    if rotate is not None:
        d, random = len(tensors["unembed.W_U"]), torch.Generator().manual_seed(rotate)
        turn = torch.linalg.qr(torch.randn(d, d, generator=random, dtype=torch.float64)).Q
        tensors = {name: _turned(name, tensor, turn) for name, tensor in tensors.items()}
        directions = {name: rows @ turn for name, rows in directions.items()}
    for name, tensor in tensors.items() if noise else ():
        tensors[name] = tensor + noise * torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    arguments: dict[str, Scalar] = {"decoys": decoys, "noise": float(noise), "sharp": float(sharp)}
    arguments |= {"draw_seed": draw_seed, **({"dead": dead} if dead else {})}
    arguments |= {} if rotate is None else {"rotate": rotate}
    spec = ModelSpec(
        task=task.ref, d_model=len(tensors["unembed.W_U"]), layers=layers, positions="learned", dtype="float64",
        direction="causal" if program.causal else "bidirectional", max_length=program.length, readout_at=program.read,
        origin=Construction(name="programs/compiled", arguments=tuple(arguments.items())),
    )  # fmt: skip
    on = f"on all {seen.rows:,} inputs" if seen.whole else f"with numbers that occur in {seen.rows:,} drawn inputs"
    weights = ConstructedWeights(
        tensors, directions={name: rows for name, rows in directions.items() if name}, margin=seen.margin,
        claim=f"gives the program's answers {on}{', up to noise on the weights' * bool(noise)}",
        numbers={"sharp": float(sharp)},
    )  # fmt: skip
    return Construct(spec, task, weights)


# ---------------------------------------------------------------- where steps go


def placed(program: Program) -> Program:
    """Name the part of each step: the first layer in which its variables exist."""
    made_at = {"token": 0, "position": 0}  # attention of layer l reads what is made at 2 l, its MLP what is at 2 l + 1
    heads: dict[int, int] = {}
    steps: list[Step] = []
    for step in program.steps:
        ready = max((made_at[name] for name in step.of), default=0)
        if isinstance(step, Head):
            layer = (ready + 1) // 2
            part = f"head {layer}.{heads.get(layer, 0)}"
            heads[layer] = heads.get(layer, 0) + 1
            made_at[step.name] = 2 * layer + 1
        else:
            layer = ready // 2
            part = f"MLP {layer}"
            made_at[step.name] = 2 * layer + 2
        steps.append(replace(step, part=part))  # type: ignore[call-arg]
    return replace(program, steps=tuple(steps))


def _layer(step: Step) -> int:
    return int(step.part.split()[1].split(".")[0])


def with_decoys(program: Program, n: int, generator: torch.Generator) -> Program:
    """Add n steps that nothing reads, at random layers: heads with a random selection, and random tables of codes."""
    steps, layers = list(program.steps), 1 + max(map(_layer, program.steps), default=0)

    def draw(most: int) -> int:
        return int(torch.randint(most, (), generator=generator))

    for index in range(n):
        layer, is_head = draw(layers), index % 2 == 0
        known = ["token", "position", *(s.name for s in program.steps if _layer(s) < layer)]
        values = program.values
        if is_head:
            query, key, value = (known[draw(len(known))] for _ in range(3))
            keys, shift = len(values[key]), draw(len(values[key]))
            scores = tuple(tuple(0.0 if (at - row - shift) % keys == 0 else NEVER for at in range(keys))
                           for row in range(len(values[query])))  # fmt: skip
            part = f"head {layer}.{sum(isinstance(s, Head) and _layer(s) == layer for s in steps)}"
            steps.append(Head(f"decoy {index}", query, key, scores, value, part))
            continue
        codes = [n for n in known if n in ("token", "position") or isinstance(program.step(n), Table | Linear)]
        of = tuple(dict.fromkeys(codes[draw(len(codes))] for _ in range(2)))
        entries = tuple(draw(2) for _ in range(math.prod(len(values[name]) for name in of)))
        steps.append(Table(f"decoy {index}", of, entries, ("0", "1"), f"MLP {layer}"))
    return replace(program, steps=tuple(steps))


# ---------------------------------------------------------------- tensors


def _directions(program: Program) -> dict[str, Float[Tensor, "values d"]]:
    """The directions of each variable; of "", one along which every position has 1."""
    sizes = [len(values) for values in program.values.values()]
    directions = dict(zip(program.values, torch.eye(sum(sizes), dtype=torch.float64).split(sizes)))
    return {**directions, "": directions["token"].sum(0, keepdim=True)}


def _tensors(
    program: Program, seen: Observed, directions: dict[str, Tensor], sharp: float
) -> tuple[dict[str, Tensor], tuple[Layer, ...]]:
    d = directions[""].shape[1]
    n_layers = 1 + max(map(_layer, program.steps), default=0)
    steps = [[step for step in program.steps if _layer(step) == at] for at in range(n_layers)]
    heads = [[step for step in row if isinstance(step, Head)] for row in steps]
    maps = [[step for step in row if not isinstance(step, Head)] for row in steps]
    n_heads = max(1, *map(len, heads))
    ranks = [min(len(step.scores), len(step.scores[0])) for row in heads for step in row]
    d_head = max([*ranks, *(len(directions[step.value]) for row in heads for step in row)], default=1)
    tensors = {"embed.W_E": directions["token"].clone(), "pos_embed.W_pos": directions["position"].clone()}
    layers = []
    for at in range(n_layers):
        for name, shape in (("Q", (d, d_head)), ("K", (d, d_head)), ("V", (d, d_head)), ("O", (d_head, d))):
            tensors[f"blocks.{at}.attn.W_{name}"] = torch.zeros(n_heads, *shape, dtype=torch.float64)
        for index, step in enumerate(heads[at]):
            for name, matrix in _head(step, directions, sharp).items():
                tensors[f"blocks.{at}.attn.W_{name}"][index, : matrix.shape[0], : matrix.shape[1]] = matrix
        width = 0
        if maps[at]:
            mlps = [(step, neurons(step, seen)) for step in maps[at] if isinstance(step, Table | Linear | Product)]
            read = [torch.cat([directions[name] for name in step.of] or [directions[""][:0]]) for step, _ in mlps]
            tensors[f"blocks.{at}.mlp.W_in"] = torch.cat([rows.T @ mlp.into for rows, (_, mlp) in zip(read, mlps)], 1)
            tensors[f"blocks.{at}.mlp.b_in"] = torch.cat([mlp.shift for _, mlp in mlps])
            tensors[f"blocks.{at}.mlp.W_out"] = torch.cat([mlp.out @ directions[step.name] for step, mlp in mlps])
            tensors[f"blocks.{at}.mlp.b_out"] = sum(mlp.base @ directions[step.name] for step, mlp in mlps)  # type: ignore[assignment]
            width = tensors[f"blocks.{at}.mlp.b_in"].shape[0]
        layers.append(Layer(n_heads=n_heads, d_head=d_head, scale=1.0, mlp=MLP(d_mlp=width) if width else None))
    answer = program.answer
    assert isinstance(answer, Linear)  # checked before
    weights = [directions[name].T @ torch.tensor(w, dtype=torch.float64) for name, w in zip(answer.of, answer.weights)]
    tensors["unembed.W_U"] = torch.stack([*weights, torch.zeros(d, len(answer.values), dtype=torch.float64)]).sum(0)
    tensors["unembed.b_U"] = torch.tensor(answer.bias, dtype=torch.float64)
    return tensors, tuple(layers)


def with_dead(
    tensors: dict[str, Tensor], layers: tuple[Layer, ...], n: int, generator: torch.Generator
) -> tuple[dict[str, Tensor], tuple[Layer, ...]]:
    """Add n dead neurons to the MLP of each layer: they write to UNREAD new directions, which only they read."""
    d, padded = len(tensors["unembed.W_U"]), dict[str, Tensor]()
    for name, tensor in tensors.items():
        kind = name.rsplit(".", 1)[-1]
        more = (0, UNREAD) if kind in WRITE else (0, 0, 0, UNREAD) if kind in READ else (0, 0)
        padded[name] = torch.nn.functional.pad(tensor, more)
    new = []
    for at, layer in enumerate(layers):
        into = torch.randn(d + UNREAD, n, generator=generator, dtype=torch.float64)
        shift = torch.randn(n, generator=generator, dtype=torch.float64)
        out = torch.cat([torch.zeros(n, d), torch.randn(n, UNREAD, generator=generator)], 1).double()
        for name, tensor, dim in (("W_in", into, 1), ("b_in", shift, 0), ("W_out", out, 0)):
            old = padded.get(f"blocks.{at}.mlp.{name}")
            padded[f"blocks.{at}.mlp.{name}"] = tensor if old is None else torch.cat([old, tensor], dim)
        padded.setdefault(f"blocks.{at}.mlp.b_out", torch.zeros(d + UNREAD, dtype=torch.float64))
        new.append(layer.model_copy(update={"mlp": MLP(d_mlp=padded[f"blocks.{at}.mlp.b_in"].shape[0])}))
    return padded, tuple(new)


def _head(step: Head, directions: dict[str, Tensor], sharp: float) -> dict[str, Tensor]:
    """The matrices of a head."""
    scores = torch.tensor(step.scores, dtype=torch.float64)
    lowest = scores[scores > NEVER].amin() if bool((scores > NEVER).any()) else torch.tensor(sharp).double()
    scores = torch.where(scores > NEVER, scores, lowest - sharp)
    query, key, value = (directions[name] for name in (step.query, step.key, step.value))
    wide = scores.shape[0] < scores.shape[1]
    return {
        "Q": query.T if wide else query.T @ scores,
        "K": key.T @ scores.T if wide else key.T,
        "V": value.T,
        "O": directions[step.name],
    }


def _turned(name: str, tensor: Tensor, turn: Float[Tensor, "d d"]) -> Tensor:
    """Rotate the residual stream that a matrix reads or writes."""
    kind = name.rsplit(".", 1)[-1]
    if kind in READ:
        return turn.T @ tensor
    return tensor @ turn if kind in WRITE else tensor
