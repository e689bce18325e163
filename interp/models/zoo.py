"""Build, load and save task models by name.

Exact models are registered constructions, and trained models are files (models.model_files). A name is searched as a
path, as a construction, in $INTERP_MODELS, in models/ upward from the working directory, and among the models shipped
with interp, in this order.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch

from interp.errors import InterpError, UnsupportedError, as_path, check_size, of_type, quoted, short
from interp.models.architecture.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from interp.models.architecture.foreign import read_state_dict
from interp.models.architecture.header import lacks_header
from interp.models.architecture.limits import LengthLimit
from interp.models.constructions import Construct, construct, registered_constructions
from interp.models.model_files import (
    PLAIN,
    SPEC_FILE,
    expanded,
    find_checkpoint,
    find_spec,
    is_dir,
    is_file,
    no_model,
    shipped_root,
)
from interp.models.spec import Construction, ModelSpec, read_json, read_toml
from interp.tasks import Task, make_task

if TYPE_CHECKING:
    from interp.models.architecture.task_model import TaskModel
    from interp.models.lens import HookedTransformer
    from interp.models.subject import Padding, Subject


def build(
    name_or_spec: str | Path | ModelSpec,
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str | None = None,
    variant: str | None = None,
    **sizes: Any,
) -> TaskModel:
    """Build a task model: exact if the origin is a construction, otherwise with random weights from `seed`.

    name_or_spec: the name of a construction (`variant` and `sizes` are its arguments), a ModelSpec, the path of a TOML
    spec, or the name of a trained model, to use its spec. Raises InterpError for unknown names, and if the construction
    builds a model with another spec.

    Example:

        >>> exact = interp.build("histogram/dot-exact", T=4, L=3)
        >>> exact.predict(exact.task.of_sequences(torch.tensor([[2, 0, 2]])).tokens).tolist()
        [[2, 1, 2]]
    """
    from interp.models.architecture.task_model import TaskModel  # loads transformer_lens, which takes seconds

    check_size("seed", seed, least=0)
    if not isinstance(name_or_spec, ModelSpec):
        _check_name(name_or_spec)
    name_or_spec = _respell(name_or_spec) if isinstance(name_or_spec, str) else name_or_spec
    if isinstance(name_or_spec, str) and name_or_spec in registered_constructions():
        return construct(name_or_spec, variant, **sizes).model(seed=seed, device=device, dtype=dtype)
    if variant is not None or sizes:
        arguments = ", ".join([*(["variant"] if variant is not None else []), *sizes])
        raise InterpError(f"{arguments}: only constructions take sizes, and {_short(name_or_spec)} is not one")
    spec = name_or_spec if isinstance(name_or_spec, ModelSpec) else ModelSpec.from_toml(find_spec(name_or_spec))
    if not isinstance(spec.origin, Construction):
        task = None if spec.task.table_sha256 else make_task(spec.task)
        read = spec if task is None else spec.read_as(task.readout)
        return TaskModel(read, task, seed=seed, device=device, dtype=dtype)
    # A memorization model is made of its task's table, a compiled one of its task's program.
    taken = [name for name in ("table", "program") if name in _sizes(spec.origin.name)]
    more = {name: make_task(spec.task) for name in taken}
    return _construct(spec, spec.origin, **more).model(seed=seed, device=device, dtype=dtype)


@overload
def load(
    name_or_path: str | Path,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str | None = None,
    spec: ModelSpec | str | Path | None = None,
) -> TaskModel: ...


@overload
def load(
    name_or_path: Any,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str | None = None,
    *,
    task: Task | str,
    config: Any = None,
    tokens: Mapping[str, int] | None = None,
    outputs: Mapping[str, int] | None = None,
    padding: Padding = "mask",
) -> TaskModel | Subject: ...


def load(
    name_or_path: Any,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str | None = None,
    spec: ModelSpec | str | Path | None = None,
    *,
    task: Task | str | None = None,
    config: Any = None,
    tokens: Mapping[str, int] | None = None,
    outputs: Mapping[str, int] | None = None,
    padding: Padding = "mask",
) -> TaskModel | Subject:
    """Load a model: a checkpoint by path or name, an exact model by name, or an external model.

    "count01/paper" is the default checkpoint of that model, and "count01/paper/seed-2" is another one. Your own
    HookedTransformer state dict (.pt, .pth or plain .safetensors) needs a spec: `spec`, or a TOML or JSON file with the
    same stem.

    With `task`, check that a model of interp's is one of this task, or load an external model: a file, folder or
    module in a supported format, a state dict (a file or a mapping) with its TransformerLens `config` (a dict, a
    JSON or TOML file, a config object), a HookedTransformer, or a TransformerBridge. tokens: the model's id of each
    token of the task, if they differ. outputs: its output for each answer word of the task. padding: how a
    bidirectional model treats padding. If a spec can express the model, the result is a TaskModel with the task's
    ids; otherwise it is a Subject, which analyze and all measures also accept.

        model = interp.load("theirs.pt", task="count01", config="theirs.json", tokens={"0": 3, "1": 4, ...})
        interp.analyze(model)

    Raises InterpError with the places searched and similar names, and CheckpointError for a broken file.

    Example:

        >>> interp.load("count01/paper/seed-2")
        TaskModel(count01-d32-h16-4ab466eb8b, task=Count01(), seed=2: 1 layer of 16 heads, 4,712 parameters)
    """
    if spec is not None and task is not None:
        raise InterpError("a spec names its task: give spec= or task= with config=, not both")
    bare = task is None and config is None and tokens is None and outputs is None
    if bare or (config is None and isinstance(name_or_path, str | Path) and _is_own(name_or_path)):
        _check_name(name_or_path)
        model = _load_own(name_or_path, spec, device, dtype)
        if task is not None or tokens is not None or outputs is not None or padding != "mask":
            from interp.models.subject import check_nothing_else

            check_nothing_else(model, task, tokens, outputs, padding)
        return model
    if task is None:
        raise InterpError('an external model needs its task: task="count01", or a task of your own')
    return _load_external(name_or_path, task, config, tokens, outputs, padding, device, dtype)


def _load_own(
    name_or_path: str | Path, spec: ModelSpec | str | Path | None, device: str | torch.device, dtype: Any
) -> TaskModel:
    """Load a checkpoint by path or name, or build an exact model by name."""
    name = _respell(name_or_path) if isinstance(name_or_path, str) else name_or_path
    if isinstance(name, str) and _is_exact(name):
        model = build(name, device=device, dtype=dtype)
        model.loaded_as = name
        return model.eval()
    path = find_checkpoint(name)
    if path.name.endswith(PLAIN):
        raise InterpError(no_model(path))
    from interp.models.architecture.task_model import TaskModel  # takes seconds, so check the name first

    saved = _read(path, spec)
    notes, limit = _notes(saved.summary), _proven_limit(saved)
    model = TaskModel(saved.spec, saved.task, saved.tensors, seed=saved.seed, device=device, dtype=dtype)
    model.summary, model.notes, model.length_limit = saved.summary, notes, limit
    if isinstance(saved.summary.get("curve"), dict):
        model.history = _history(model)
    model.loaded_as = str(name)
    return model.eval()


def _is_exact(name: str) -> bool:
    """Test for the name of a construction. To know them takes importing all, which a trained model does not need."""
    trained = is_file(Path(name)) or is_file(shipped_root() / name / "seed-0.safetensors")
    return not trained and name in registered_constructions()


def _load_external(
    source: Any,
    task: Task | str,
    config: Any,
    tokens: Mapping[str, int] | None,
    outputs: Mapping[str, int] | None,
    padding: Padding,
    device: str | torch.device,
    dtype: torch.dtype | str | None,
) -> TaskModel | Subject:
    """Load an external model: a TaskModel if a spec can express it, otherwise a Subject."""
    from interp.models.architecture.stock import to_task_model
    from interp.models.architecture.task_model import TaskModel, as_device, as_dtype
    from interp.models.readers.models import convert
    from interp.models.subject import Subject, check_nothing_else

    if isinstance(source, TaskModel | Subject):
        check_nothing_else(source.model if isinstance(source, Subject) else source, task, tokens, outputs, padding)
        return source
    if padding not in ("mask", "attend"):
        raise InterpError(f"padding = {padding!r} must be 'mask' or 'attend'")
    for name, given in (("tokens", tokens), ("outputs", outputs)):
        if given is not None and not isinstance(given, Mapping):
            raise InterpError(f"{name} = {quoted(given)} must be a mapping, such as {{'a': 0, 'b': 1}}")
    place, kind = as_device(device), None if dtype is None else as_dtype(dtype)
    config = settings_of(config) if isinstance(config, str | Path) else config
    source = expanded(source) if isinstance(source, str) else source
    converted = convert(source, config, task, tokens, outputs, padding)
    if converted.notes and converted.doubtful:
        warnings.warn(f"{' '.join(converted.notes)} {CHECK}", stacklevel=3)
    path = str(source) if isinstance(source, str | Path) else ""
    subject = converted.subject
    if isinstance(subject.model, TaskModel):
        known = subject.task
        if padding == "attend" and known.pad is not None and subject.model.spec.direction == "bidirectional":
            raise UnsupportedError(
                "padding = 'attend': a torch.nn.TransformerEncoder becomes a task model, which never attends to it "
                f"(in a task without pad, {known.pad!r} would be a token like others)"
            )
        return _finish_converted(subject.model, converted.notes, path, place, kind)
    try:
        task_model = to_task_model(subject.model, subject.task, subject.token_ids, subject.output_ids, padding)
    except UnsupportedError:
        return replace(subject, model=_move_model(subject.model, place, kind), notes=converted.notes, source=path)
    return _finish_converted(task_model, converted.notes, path, place, kind)


def _finish_converted(
    model: TaskModel, notes: tuple[str, ...], path: str, place: torch.device, kind: torch.dtype | None
) -> TaskModel:
    """Return a converted model that knows how it was loaded, in its format and on its device."""
    if kind is not None:
        model.to(kind, print_details=False)
    moved = model.to(place, print_details=False)
    moved.notes, moved.loaded_as = notes, path
    return moved.eval()


def _move_model(model: HookedTransformer, place: torch.device, kind: torch.dtype | None) -> HookedTransformer:
    """Return a model in a format and on a device: a copy, where the caller's would change."""
    from interp.models.architecture.comparison import cast

    if kind is None and place == model.W_E.device:
        return model
    return cast(model, kind or model.cfg.dtype).to(place, print_details=False)


CHECK = "interp.check_conversion compares the model with your own forward pass."


def settings_of(config: str | Path | None) -> dict[str, Any] | None:
    """Read the fields of a JSON or TOML file: a whole TransformerLens config, or a few settings for a reader.

    TOML cannot write None; the word "none" stands for it.
    """
    if config is None:
        return None
    if Path(config).suffix in (".pt", ".pth"):
        raise InterpError(
            f"config={short(str(config))!r}: give a JSON or TOML file, a dict or a config object; from a file that you "
            "trust, config=torch.load(path, weights_only=False)"
        )
    fields = read_json(config) if Path(config).suffix == ".json" else read_toml(config)
    return {name: None if value == "none" else value for name, value in fields.items()}


def _check_name(name: object) -> None:
    if isinstance(name, torch.nn.Module):
        raise InterpError(
            "this is already a model: load takes it with its task, load(model, task=...); otherwise give a name such "
            "as 'count01/paper', a path or a spec"
        )
    if not isinstance(name, (str, Path)):
        raise InterpError(
            f"expected a model, got {of_type(name)}: pass a name such as 'count01/paper' or the path of a checkpoint"
        )


def save(model: TaskModel, path: str | Path) -> Path:
    """Write a model to a .safetensors checkpoint, with model.summary and its training curve, if any (a few kB).

    Raises InterpError for anything but a task model, and for weights that the spec's dtype would round.

    Example:

        >>> path = interp.save(interp.build("count01/minimal"), "mine.safetensors")
        >>> interp.load(path).seed
        0
    """
    from interp.models.architecture.task_model import TaskModel

    if not isinstance(model, TaskModel):
        raise InterpError(
            f"save needs a task model (interp.build, load or train), not {of_type(model)}; "
            "interp.load converts your own state dict with its spec"
        )
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    facts = dict(model.summary)
    if model.notes:
        facts.setdefault("notes", list(model.notes))
    if model.history is not None:
        from interp.models.training_curves import compact

        facts.setdefault("curve", compact(model.history))
    return save_checkpoint(as_path(path, "a checkpoint"), model.spec, tensors, model.seed, facts, model.task)


def _notes(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what was assumed when a model was converted, as its checkpoint says."""
    notes = summary.get("notes")
    return tuple(note for note in notes if isinstance(note, str)) if isinstance(notes, list) else ()


def _history(model: TaskModel) -> Any:
    """Return the training curve of a model's summary, or None if its format is unknown."""
    from interp.models.training_curves import training_curve

    try:
        return training_curve(model)[["seed", "epoch", "loss", "accuracy"]]
    except InterpError:
        return None


def _proven_limit(checkpoint: Checkpoint) -> LengthLimit | None:
    """Return the length up to which the origin's proof is valid, or None if the weights are not the construction's."""
    origin = checkpoint.spec.origin
    if not isinstance(origin, Construction):
        return None
    try:
        proof = _construct(checkpoint.spec, origin).weights
    except InterpError:  # the construction is unknown or builds another model in this version
        return None
    same = all(proof.tensors[name].equal(tensor) for name, tensor in checkpoint.tensors.items())
    return proof.length_limit if same else None


def _sizes(name: str) -> Mapping[str, Any]:
    entry = registered_constructions().get(name)
    return {} if entry is None else entry.sizes


def _construct(spec: ModelSpec, origin: Construction, **more: Any) -> Construct:
    """Build the construction of a spec's origin. Raises InterpError if it has another spec."""
    built = construct(origin.name, origin.variant or None, **dict(origin.arguments), **more)
    if built.spec != spec:
        what = _difference(built.spec, spec)
        raise InterpError(f"{origin.name} with these arguments builds {built.spec.id}, not {spec.id}: {what}")
    return built


def _read(path: Path, spec: ModelSpec | str | Path | None) -> Checkpoint:
    """Read interp's own checkpoint, or a user's state dict if a spec is given or next to a file without a header."""
    is_state_dict = spec is not None or path.suffix in (".pt", ".pth") or (_has_spec(path) and lacks_header(path))
    return read_state_dict(path, spec) if is_state_dict else read_checkpoint(path)


def _is_own(name_or_path: str | Path) -> bool:
    """Test whether `load` reads this without a task and a config; False for existing external files and folders."""
    path = expanded(name_or_path)
    if is_file(path):
        header = path.suffix == ".safetensors" and not lacks_header(path)
        return header or path.name.endswith(PLAIN) or _has_spec(path)
    return not is_dir(path) or is_file(path / SPEC_FILE)


def _has_spec(path: Path) -> bool:
    """Test whether a spec is next to this file, rather than a config of another library or an explanation."""
    beside = [path.with_suffix(suffix) for suffix in (".toml", ".json")]
    return any({"task", "d_model"} <= set(settings_of(other) or {}) for other in beside if is_file(other))


def _difference(built: ModelSpec, wanted: ModelSpec) -> str:
    """List the fields in which two specs differ, for a message."""
    fields = [name for name in type(built).model_fields if getattr(built, name) != getattr(wanted, name)]
    return "; ".join(f"{name} is {getattr(built, name)!r}, not {getattr(wanted, name)!r}" for name in fields)


def _short(thing: object) -> str:
    return thing.id if isinstance(thing, ModelSpec) else repr(short(thing))


def _respell(name: str) -> str:
    """Convert a name to interp's spelling: the counting paper's dot+sftm is dot-softmax here."""
    return name if is_file(Path(name)) else name.replace("+sftm", "-softmax")
