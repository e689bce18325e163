"""The folders of trained models, and the files that names refer to.

A trained model is models/<family>/<name>/ with model.toml (the spec, and a table [zoo] with `default` and `summary`)
and seed-N.safetensors. A name resolves as a path, then under $INTERP_MODELS, then in models/ upward from the working
directory, then among the models shipped with interp.
"""

import gzip
import json
import os
import re
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from interp.errors import LONG, CheckpointError, InterpError, short
from interp.models.spec import read_toml

SPEC_FILE = "model.toml"
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FILES = (".safetensors", ".pt", ".pth", ".toml")
PLAIN = (".toml", ".json", ".json.gz")
"""Endings of files of plain data, which hold no model."""
MOST_PLAIN = 64 * 2**20
"""Bytes read of such a file."""


class HiddenModel(UserWarning):
    """A user's model has the same name as one shipped with interp."""


def shipped_root() -> Path:
    """Return the folder of the models shipped with interp: package data, or the repository's models/ in a clone."""
    package = Path(__file__).parents[1]
    clone = package.parent / "models"
    return clone if (package.parent / "hatch_build.py").is_file() and clone.is_dir() else package / "_models"


def own_roots() -> list[Path]:
    """Return the user's folders: $INTERP_MODELS, then the nearest models/ upward from the working directory."""
    listed = [expanded(entry) for entry in os.environ.get("INTERP_MODELS", "").split(os.pathsep) if entry]
    here = Path.cwd()
    upward = (folder / "models" for folder in (here, *here.parents))
    near = next((root for root in upward if root.is_dir() and next(root.glob(f"*/*/{SPEC_FILE}"), None)), None)
    return listed + ([near] if near else [])


def model_roots() -> list[Path]:
    """Return the folders in which trained models are searched, in order: the user's, then the shipped one."""
    user_roots, shipped = own_roots(), shipped_root()
    return user_roots if shipped in user_roots or not shipped.is_dir() else [*user_roots, shipped]


def expanded(path: str | Path) -> Path:
    """Expand ~ in a path. Raises InterpError for an unknown home or anything that is not a path."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InterpError(f"{short(path)!r}: no such user") from None


is_file, is_dir = os.path.isfile, os.path.isdir
"""path.is_file() and path.is_dir(), or False for invalid names (too long, or with a zero byte)."""


def _announce_hidden(name: str, path: Path, root: Path) -> None:
    """Warn, once per name, that the user's model hides one shipped with interp."""
    shipped = shipped_root() / path.relative_to(root)
    if root == shipped_root() or not is_file(shipped) or shipped.read_bytes() == path.read_bytes():
        return
    warnings.warn(f"{name} in {root} hides the model of this name shipped with interp", HiddenModel, stacklevel=4)


def find_checkpoint(name: str | Path) -> Path:
    """Find the file for a path or name. "family/name" is the default checkpoint of its model.toml.

    Raises InterpError with the places searched and the closest names.
    """
    path = expanded(name)
    if is_file(path):
        return path
    if path.suffix in _FILES:
        raise CheckpointError(f"no such file: {short(path)}")
    if is_file(path / SPEC_FILE):
        return default_checkpoint(path)
    parts = _parts(str(name))
    for root in model_roots():
        folder = root.joinpath(*parts[:2])
        if not (folder / SPEC_FILE).is_file():
            continue
        file = default_checkpoint(folder) if len(parts) == 2 else folder / f"{parts[2]}.safetensors"
        if file.is_file():
            _announce_hidden(str(name), file, root)
            return file
    raise unknown(str(name))


def find_spec(name: str | Path) -> Path:
    """Find the TOML file for a path or the name of a trained model."""
    path = expanded(name)
    if is_file(path):
        return path
    if path.suffix == ".toml":
        raise InterpError(f"no such file: {short(path)}")
    if is_file(path / SPEC_FILE):
        return path / SPEC_FILE
    parts = _parts(str(name))
    for root in model_roots():
        file = root.joinpath(*parts, SPEC_FILE)
        if file.is_file():
            _announce_hidden(str(name), file, root)
            return file
    raise unknown(str(name))


def _parts(name: str) -> list[str]:
    """Split a name, family/name or family/name/seed-N. Raises InterpError for other names, including ".."."""
    parts = name.split("/")
    if len(parts) not in (2, 3) or not all(_PART.fullmatch(part) for part in parts):
        raise unknown(name)
    return parts


def default_checkpoint(folder: Path) -> Path:
    """Return the default checkpoint of a model's folder: [zoo] default in its model.toml, or seed-0."""
    zoo = zoo_table(folder)
    chosen = zoo.get("default", "seed-0")
    if not isinstance(chosen, str) or not _PART.fullmatch(chosen):
        raise InterpError(f"{folder / SPEC_FILE}: [zoo] default = {chosen!r} must name a checkpoint, such as 'seed-0'")
    file = folder / f"{chosen}.safetensors"
    if not file.is_file():
        if chosen.startswith("seed-"):
            raise CheckpointError(
                f"no such file: {short(file)}: weights of {folder.parent.name}/{folder.name} are not shipped; train "
                f"them with: interp train {folder / SPEC_FILE} -o {folder}"
            )
        raise CheckpointError(f"no such file: {file}, the default checkpoint that {folder / SPEC_FILE} names")
    return file


def zoo_table(folder: Path) -> dict[str, Any]:
    table = read_toml(folder / SPEC_FILE).get("zoo", {})
    if not isinstance(table, dict):
        raise InterpError(f"{folder / SPEC_FILE}: zoo must be a table, not {table!r}")
    return table


def unknown(name: str) -> InterpError:
    """Make the error for an unknown name, with the places searched and the closest names."""
    from interp.models.constructions import registered_constructions  # loads torch

    known = list(dict.fromkeys([*registered_constructions(), *(folder.name for folder in folders())]))
    if name.count("/") == 2:
        known += [f"{folder.name}/{file.stem}" for folder in folders() for file in folder.checkpoints]
    places = [f"in {root}" for root in own_roots()] + ["among those shipped with interp"]
    environment = "" if os.environ.get("INTERP_MODELS") else " ($INTERP_MODELS is not set)"
    close = get_close_matches(name[:LONG], known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(c) for c in close)}?" if close else "`interp models` lists all"
    return InterpError(
        f"no model {short(name)!r}: tried it as a file, as an exact model, {', '.join(places)}{environment}; {hint}"
    )


def no_model(path: Path) -> str:
    """Say of a file of plain data that is given as a model what it is, and what would be right."""
    kind = "TOML" if path.suffix == ".toml" else "JSON"
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read(MOST_PLAIN).decode()
        content = tomllib.loads(text) if kind == "TOML" else json.loads(text)
    except (ValueError, OSError, EOFError, RecursionError) as error:
        return f"{path} is neither a checkpoint nor a readable {kind} file ({error}): {A_MODEL}"
    data = content if isinstance(content, dict) else {}
    for entries, what, right in KINDS:
        if entries <= set(data):
            of = f" of {short(data['model'])}" if "{of}" in what else ""
            return f"{path} is {what.format(of=of)}, not a checkpoint: {right}"
    return f"{path} is a {kind} file without a model, not a checkpoint: {A_MODEL}"


A_MODEL = "give a checkpoint (.safetensors, .pt) or a name such as count01/paper"
KINDS: tuple[tuple[set[str], str, str], ...] = (
    ({"task", "d_model"}, "a spec", "interp.build builds a new model from it, interp.train trains one"),
    ({"base", "axes"}, "the grid of a sweep", "interp.sweep trains its models"),
    ({"model", "level", "stand_ins"}, "an explanation{of}", "give the model itself; Explanation.from_json reads this"),
    (
        {"model", "evidence", "claim"},
        "the evidence of a certificate{of}",
        "give the model itself; the checker reads this",
    ),
    ({"vocabulary", "steps", "answer"}, "a program", "interp.compile makes a model of what Program.from_json reads"),
    (
        {"n_layers", "d_model", "d_vocab"},
        "a TransformerLens config",
        "give the file of the weights, and this as config",
    ),
    ({"model_type"}, "a Hugging Face config", "give the folder that it is in"),
)
"""What is in files of plain data: some of the entries of each kind, its name, and what would be right as a model."""


@dataclass(frozen=True)
class Folder:
    name: str
    path: Path

    @property
    def checkpoints(self) -> list[Path]:
        return sorted(self.path.glob("*.safetensors"), key=lambda file: (len(file.stem), file.stem))


def folders() -> Iterator[Folder]:
    """Yield every models/<family>/<name>/ with a model.toml; for repeated names, the folder that the name refers to."""
    seen = set()
    for root in model_roots():
        for spec_file in sorted(root.glob(f"*/*/{SPEC_FILE}")):
            name = "/".join(spec_file.parts[-3:-1])
            if name not in seen:
                seen.add(name)
                yield Folder(name, spec_file.parent)
