"""Names to task models: build a fresh one, load a checkpoint, save one, list what there is.

Exact models live in code: a construction registers its name. Trained models are data, models/<family>/<name>/ with
model.toml (the spec, and a table [zoo] with `default` and `summary`) and seed-N.safetensors. A name resolves as an
explicit path, then a construction, then under $INTERP_MODELS, then in models/ upward from the working directory.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open

from interp.architecture.checkpoint import Checkpoint, read_checkpoint, read_header, save_checkpoint
from interp.architecture.foreign import read_state_dict
from interp.architecture.limits import LengthLimit
from interp.architecture.parameters import parameter_shapes
from interp.constructions import Construct, construct, registered_constructions
from interp.errors import CheckpointError, InterpError
from interp.spec import Construction, ModelSpec, read_toml
from interp.tasks import Task, make_task, registered_tasks

if TYPE_CHECKING:
    import pandas as pd

    from interp.architecture.task_model import TaskModel

SPEC_FILE = "model.toml"
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FILES = (".safetensors", ".pt", ".pth", ".toml")


# ---------------------------------------------------------------- build, load, save


def build(
    name_or_spec: str | Path | ModelSpec,
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str | None = None,
    variant: str | None = None,
    **sizes: Any,
) -> TaskModel:
    """A fresh task model: exact where the origin is a construction, with random weights from `seed` otherwise.

    name_or_spec: the name of a construction (`variant` and `sizes` go to it), a ModelSpec, the path of a TOML spec, or
    the name of a trained model, whose spec is taken. Raises InterpError for unknown names and for a spec whose
    construction does not build just that spec.
    """
    from interp.architecture.task_model import TaskModel  # loads transformer_lens, which takes seconds

    name_or_spec = _spelled(name_or_spec) if isinstance(name_or_spec, str) else name_or_spec
    if isinstance(name_or_spec, str) and name_or_spec in registered_constructions():
        return construct(name_or_spec, variant, **sizes).model(seed=seed, device=device, dtype=dtype)
    if variant is not None or sizes:
        given = ", ".join([*(["variant"] if variant is not None else []), *sizes])
        raise InterpError(f"{given}: only constructions take sizes, and {_short(name_or_spec)} is none")
    spec = name_or_spec if isinstance(name_or_spec, ModelSpec) else ModelSpec.from_toml(_find_spec(name_or_spec))
    if not isinstance(spec.origin, Construction):
        return TaskModel(spec, seed=seed, device=device, dtype=dtype)
    # The table of a memorization model is its task's.
    table = {"table": make_task(spec.task)} if _takes_table(spec.origin.name) else {}
    return _construct(spec, spec.origin, **table).model(seed=seed, device=device, dtype=dtype)


def load(
    name_or_path: str | Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str | None = None,
    spec: ModelSpec | str | Path | None = None,
) -> TaskModel:
    """The task model of a checkpoint, by path or name; an exact name is built.

    "count01/paper" is the default checkpoint of that model, "count01/paper/seed-2" another. A HookedTransformer state
    dict of your own (.pt, .pth or plain .safetensors) needs its spec: `spec`, or a TOML or JSON file of the same stem.
    Raises InterpError with the places tried and the closest names, CheckpointError for a broken file.
    """
    from interp.architecture.task_model import TaskModel

    name_or_path = _spelled(name_or_path) if isinstance(name_or_path, str) else name_or_path
    exact = isinstance(name_or_path, str) and name_or_path in registered_constructions()
    if exact and not Path(name_or_path).is_file():
        return build(name_or_path, device=device, dtype=dtype)
    path = find_checkpoint(name_or_path)
    checkpoint = _read(path, spec)
    model = TaskModel(
        checkpoint.spec, checkpoint.task, checkpoint.tensors, seed=checkpoint.seed, device=device, dtype=dtype
    )
    model.summary = checkpoint.summary
    model.length_limit = _proven_limit(checkpoint)
    return model


def save(model: TaskModel, path: str | Path, summary: Mapping[str, Any] | None = None) -> Path:
    """Write a model to a .safetensors checkpoint; summary: small facts about its training, else those it came with.

    Raises InterpError for anything but a task model, and for weights that the spec's dtype would round.
    """
    from interp.architecture.task_model import TaskModel

    if not isinstance(model, TaskModel):
        raise InterpError(
            f"save needs a task model (interp.build, load or train), not a {type(model).__name__}; "
            "a state dict of your own is loaded with its spec beside it"
        )
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return save_checkpoint(
        path, model.spec, tensors, model.seed, model.summary if summary is None else summary, model.task
    )


def _proven_limit(checkpoint: Checkpoint) -> LengthLimit | None:
    """The length up to which a proof holds, if these weights are still those of the proof that the origin names."""
    origin = checkpoint.spec.origin
    if not isinstance(origin, Construction):
        return None
    try:
        proof = _construct(checkpoint.spec, origin).weights
    except InterpError:  # unknown here, or built otherwise by this version: weights without a proof
        return None
    same = all(proof.tensors[name].equal(tensor) for name, tensor in checkpoint.tensors.items())
    return proof.length_limit if same else None


def _takes_table(name: str) -> bool:
    entry = registered_constructions().get(name)
    return entry is not None and "table" in entry.sizes


def _construct(spec: ModelSpec, origin: Construction, **more: Any) -> Construct:
    """What the origin of a spec builds, which must be just that spec."""
    made = construct(origin.name, origin.variant or None, **dict(origin.arguments), **more)
    if made.spec != spec:
        what = _difference(made.spec, spec)
        raise InterpError(f"{origin.name} with these arguments builds {made.spec.id}, not {spec.id}: {what}")
    return made


def _read(path: Path, spec: ModelSpec | str | Path | None) -> Checkpoint:
    """One of ours; a state dict of the user's own where a spec is given, or stands beside a file without our header."""
    beside = any(path.with_suffix(suffix).is_file() for suffix in (".toml", ".json"))
    own = spec is not None or path.suffix in (".pt", ".pth") or (beside and _lacks_header(path))
    return read_state_dict(path, spec) if own else read_checkpoint(path)


def _lacks_header(path: Path) -> bool:
    """A whole safetensors file without our header? (a broken one is for read_checkpoint to refuse)"""
    try:
        with safe_open(path, framework="pt") as file:
            return "interp" not in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False


def _difference(made: ModelSpec, given: ModelSpec) -> str:
    """The fields in which two specs differ, for a sentence."""
    fields = [name for name in type(made).model_fields if getattr(made, name) != getattr(given, name)]
    return "; ".join(f"{name} is {getattr(made, name)!r}, not {getattr(given, name)!r}" for name in fields)


def _short(thing: object) -> str:
    return thing.id if isinstance(thing, ModelSpec) else repr(str(thing))


# ---------------------------------------------------------------- names


def _spelled(name: str) -> str:
    """A name in our spelling: the counting paper's dot+sftm is dot-softmax here."""
    return name if Path(name).exists() else name.replace("+sftm", "-softmax")


def model_roots() -> list[Path]:
    """Where trained models are looked for: the folders of $INTERP_MODELS, then the nearest models/ upward from here."""
    given = [Path(entry).expanduser() for entry in os.environ.get("INTERP_MODELS", "").split(os.pathsep) if entry]
    here = Path.cwd()
    upward = next((folder / "models" for folder in (here, *here.parents) if (folder / "models").is_dir()), None)
    return given + ([upward] if upward else [])


def find_checkpoint(name: str | Path) -> Path:
    """The file that a path or name means; "family/name" is the default checkpoint that its model.toml names.

    Raises InterpError with the places tried and the closest names.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if path.suffix in _FILES:
        raise CheckpointError(f"no such file: {path}")
    if (path / SPEC_FILE).is_file():
        return _default(path)
    parts = _parts(str(name))
    for root in model_roots():
        folder = root.joinpath(*parts[:2])
        if not (folder / SPEC_FILE).is_file():
            continue
        if len(parts) == 2:
            return _default(folder)
        file = folder / f"{parts[2]}.safetensors"
        if file.is_file():
            return file
    raise _unknown(str(name))


def _find_spec(name: str | Path) -> Path:
    """The TOML file that a path or the name of a trained model means."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if path.suffix == ".toml":
        raise InterpError(f"no such file: {path}")
    if (path / SPEC_FILE).is_file():
        return path / SPEC_FILE
    parts = _parts(str(name))
    for root in model_roots():
        file = root.joinpath(*parts, SPEC_FILE)
        if file.is_file():
            return file
    raise _unknown(str(name))


def _parts(name: str) -> list[str]:
    """The two or three parts of a name: family/name or family/name/seed-N. Nothing that climbs out of a folder."""
    parts = name.split("/")
    if len(parts) not in (2, 3) or not all(_PART.fullmatch(part) for part in parts):
        raise _unknown(name)
    return parts


def _default(folder: Path) -> Path:
    """The checkpoint that [zoo] default of a model's folder names, seed-0 if it says nothing."""
    chosen = _zoo_table(folder).get("default", "seed-0")
    if not isinstance(chosen, str) or not _PART.fullmatch(chosen):
        raise InterpError(f"{folder / SPEC_FILE}: [zoo] default = {chosen!r} must name a checkpoint, such as 'seed-0'")
    file = folder / f"{chosen}.safetensors"
    if not file.is_file():
        raise CheckpointError(f"no such file: {file}, the default checkpoint that {folder / SPEC_FILE} names")
    return file


def _zoo_table(folder: Path) -> dict[str, Any]:
    table = read_toml(folder / SPEC_FILE).get("zoo", {})
    if not isinstance(table, dict):
        raise InterpError(f"{folder / SPEC_FILE}: zoo must be a table, not {table!r}")
    return table


def _unknown(name: str) -> InterpError:
    """What was looked for where, and the closest names."""
    known = [*registered_constructions(), *(folder.name for folder in _folders())]
    if name.count("/") == 2:
        known += [f"{folder.name}/{file.stem}" for folder in _folders() for file in folder.checkpoints]
    roots = ", ".join(str(root) for root in model_roots()) or "no models/ folder upward from here"
    environment = "" if os.environ.get("INTERP_MODELS") else "; $INTERP_MODELS is not set"
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else f"; known: {', '.join(known)}"
    return InterpError(f"no model {name!r}: tried it as a file, as an exact model, and in {roots}{environment}{hint}")


@dataclass(frozen=True)
class _Folder:
    name: str
    path: Path

    @property
    def checkpoints(self) -> list[Path]:
        return sorted(self.path.glob("*.safetensors"), key=lambda file: (len(file.stem), file.stem))


def _folders() -> Iterator[_Folder]:
    """Every models/<family>/<name>/ with a model.toml; of two with one name, the one that names resolve to."""
    seen = set()
    for root in model_roots():
        for spec_file in sorted(root.glob(f"*/*/{SPEC_FILE}")):
            name = "/".join(spec_file.parts[-3:-1])
            if name not in seen:
                seen.add(name)
                yield _Folder(name, spec_file.parent)


# ---------------------------------------------------------------- lists


def list_models() -> pd.DataFrame:
    """Every model by name: one row each, exact ones at their default sizes, trained ones with their default checkpoint.

    Columns: name, family, task, kind (exact or trained), parameters (their number), seeds (of the checkpoints),
    about, path, and what the summary of the default checkpoint says (accuracy, ...). A folder that cannot be read is
    a row too: its `about` says why.
    """
    import pandas as pd

    exact = registered_constructions()
    # A folder of an exact model's name holds the same spec as TOML.
    rows = [_exact_row(name) for name in exact] + [_trained_row(f) for f in _folders() if f.name not in exact]
    columns = ["name", "family", "task", "kind", "parameters", "seeds", "about", "path"]
    table = pd.DataFrame(rows, columns=[*columns, *sorted({key for row in rows for key in row} - set(columns))])
    return table.astype({"parameters": "Int64"}).sort_values(["family", "name"], ignore_index=True)


def _exact_row(name: str) -> dict[str, Any]:
    entry = registered_constructions()[name]
    row: dict[str, Any] = {
        "name": name,
        "family": name.split("/")[0],
        "kind": "exact",
        "seeds": (),
        "about": entry.summary,
        "path": "",
    }
    if inspect.Parameter.empty not in entry.sizes.values():  # some need a table of the user's
        made = construct(name)
        row |= {"task": made.spec.task.name, "parameters": _size(made.spec, made.task)}
    return row


def _trained_row(folder: _Folder) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": folder.name,
        "family": folder.name.split("/")[0],
        "kind": "trained",
        "seeds": (),
        "path": str(folder.path),
    }
    try:
        zoo, spec = _zoo_table(folder.path), ModelSpec.from_toml(folder.path / SPEC_FILE)
        row |= {"task": spec.task.name, "about": str(zoo.get("summary", ""))}
        if spec.task.table_sha256 is None:
            row["parameters"] = _size(spec, make_task(spec.task))
        headers = {file: read_header(file) for file in folder.checkpoints}
        row["seeds"] = tuple(header.seed for header in headers.values())
        if headers:
            facts = headers[_default(folder.path)].summary
            row |= {
                key: value for key, value in facts.items() if key not in row and isinstance(value, int | float | str)
            }
    except InterpError as error:
        row["about"] = str(error)
    return row


def _size(spec: ModelSpec, task: Task) -> int:
    """Number of parameters."""
    return sum(torch.Size(shape).numel() for shape in parameter_shapes(spec, task).values())


def list_tasks() -> pd.DataFrame:
    """Every registered task: name, family, tokens (size of the vocabulary), outputs, readout, splits, parameters
    (name = default), about. Tokens and outputs are missing where a table of the user's decides them."""
    import pandas as pd

    rows = []
    for name, kind in registered_tasks().items():
        task = None if kind.needs_tables else kind()
        rows.append(
            {
                "name": name,
                "family": kind.family,
                "tokens": task.d_vocab if task else pd.NA,
                "outputs": task.n_out if task else pd.NA,
                "readout": kind.readout,
                "splits": ", ".join(kind.splits),
                "parameters": ", ".join(f"{key} = {value!r}" for key, value in kind.defaults.items()),
                "about": (kind.__doc__ or "").strip().split("\n", 1)[0],
            }
        )
    table = pd.DataFrame(rows).astype({"tokens": "Int64", "outputs": "Int64"})
    return table.sort_values(["family", "name"], ignore_index=True)
