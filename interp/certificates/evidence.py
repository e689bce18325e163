"""Evidence of a certificate: one JSON file that the folder `check` verifies on a bare Python, without this package.

The file contains the weights as hexadecimal floats, the spec, the claim in one sentence, and the parts into which the
domain is split. This package finds the parts with numpy in float64; the checker derives every bound again in exact
arithmetic. Stated margins are slightly below those found here.

A method has evidence if a function is registered for it; check/ documents the meaning of the parts.
"""

import gzip
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interp.certificates import check
from interp.certificates.certificate import Certificate, MadeBy
from interp.errors import InterpError, UnsupportedError
from interp.models.architecture.task_model import TaskModel
from interp.support.files import write_atomically

CLEAR_OF_ROUNDING = 16.0
"""Required ratio of margin to rounding bound for a claim about the model's own number format."""


@dataclass(frozen=True)
class Finding:
    """The content of a method's evidence: the kind of domain and its data, the parts, and their common margin.

    subject: the claim's sentence up to its margin and arithmetic. rounding: a function that returns the checker's own
    rounding bound, in its units, on the domain or samples of it; it is coarser than the certificate's.
    """

    kind: str
    domain: dict[str, Any]
    parts: list[Any]
    margin: float
    subject: str
    rounding: Callable[[check.Model], int]


Writer = Callable[[TaskModel, Certificate, dict[str, Any]], Finding | None]
_WRITERS: dict[str, list[Writer]] = {}


def register_evidence(*methods: str) -> Callable[[Writer], Writer]:
    """Decorator: register a function that makes evidence for certificates by these methods, or None if it cannot.

    The last one registered is asked first.
    """

    def add(writer: Writer) -> Writer:
        for method in methods:
            _WRITERS.setdefault(method, []).insert(0, writer)
        return writer

    return add


def check_path(path: str | Path) -> Path:
    """Check a path for evidence before the work. Raises InterpError for other file types and missing folders."""
    if not str(path).endswith((".json", ".json.gz")):
        raise InterpError(f"{str(path)!r}: evidence is a .json or a .json.gz file")
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        reason = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise InterpError(f"{path} cannot be written: {reason}")
    return path


def write_evidence(certificate: Certificate, source: MadeBy, path: str | Path) -> Path:
    """Write the evidence of a certificate to a .json or .json.gz file; equal certificates give equal bytes.

    The checker runs before the file is written. Raises UnsupportedError if the method has no evidence, if the checker
    cannot read the model, or if its bounds are too coarse for it; InterpError if the certificate leaves inputs
    undecided.
    """
    path = check_path(path)
    if source.method not in _WRITERS:
        raise UnsupportedError(f"a certificate by {source.method} has no evidence; those by {', '.join(_WRITERS)} have")
    model = source.model
    try:
        read = checker_model(model)
    except check.Fault as fault:
        raise UnsupportedError(f"{model.spec.id} has no evidence, since the checker cannot read it: {fault}") from None
    written = (write(model, certificate, source.options) for write in _WRITERS[source.method])
    finding = next(evidence for evidence in written if evidence is not None)
    if read.decoder is not None and finding.kind != "places":
        raise UnsupportedError(f"{model.spec.id} has no evidence: the checker supports its parts only by places")
    formats = dict.fromkeys((_format(model, finding, certificate), "reals"))
    for number_format in formats:
        evidence = _evidence(model, finding, number_format)
        try:
            check.check(evidence)
        except check.Fault as fault:
            refused = fault
        else:
            data = json.dumps(evidence, separators=(",", ":"), allow_nan=False).encode()
            write_atomically(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
            return path
    raise UnsupportedError(f"{model.spec.id} has no evidence, since the checker's bounds are too coarse: {refused}")


def _evidence(model: TaskModel, finding: Finding, number_format: str) -> dict[str, Any]:
    run = "" if number_format == "reals" else f", and the answers are the same as run in {number_format}"
    return {
        "evidence": check.SCHEMA,
        "model": model.spec.id,
        "spec": model.spec.to_dict(),
        "weights": hexadecimal(model),
        "weights_sha256": weights_sha256(model),
        "claim": {
            "kind": finding.kind,
            "domain": finding.domain,
            "format": number_format,
            "margin": finding.margin.hex(),
            "sentence": f"{finding.subject}; over the reals by {finding.margin.hex()} at least{run}",
        },
        "parts": finding.parts,
    }  # fmt: skip


def _format(model: TaskModel, finding: Finding, certificate: Certificate) -> str:
    """Return the model's own number format, if the checker's rounding bound is below the margin, otherwise "reals"."""
    dtype = str(model.embed.W_E.dtype).removeprefix("torch.")
    if dtype not in check.FORMATS or certificate.rounding is None or not finding.margin > certificate.rounding:
        return "reals"
    try:
        rounding = finding.rounding(checker_model(model, check.FORMATS[dtype]))
    except check.Fault:
        return "reals"
    return dtype if rounding < check.fixed(finding.margin) else "reals"


def checker_model(model: TaskModel, number_format: check.Format = check.REALS) -> check.Model:
    """Return the checker's model of these weights."""
    digest = weights_sha256(model)
    return check.Model(model.spec.to_dict(), hexadecimal(model), model.spec.id, digest, number_format)


def hexadecimal(model: TaskModel) -> dict[str, dict[str, list[Any]]]:
    """Return the weights as written in evidence."""
    return {name: {"shape": list(array.shape), "values": [float(x).hex() for x in array.ravel()]}
            for name, array in weights_of(model).items()}  # fmt: skip


def weights_of(model: TaskModel) -> dict[str, np.ndarray]:
    """Return every parameter in float64, without rounding."""
    return {name: np.asarray(p.detach().double().cpu().numpy()) for name, p in model.named_parameters()}


def weights_sha256(model: TaskModel) -> str:
    """Return the SHA-256 of the weights, as given in evidence."""
    arrays = weights_of(model)
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    return check.weights_sha256(shapes, {name: array.ravel().tolist() for name, array in arrays.items()})


def model_sha256(model: TaskModel) -> str:
    """Return the SHA-256 of spec and weights together, as printed by the checker and expected by its --sha256."""
    return checker_model(model).sha256


def round_bound_down(bound: float) -> str:
    """Round a bound down slightly, to a hexadecimal float with few digits."""
    if not bound > 0:
        raise InterpError(f"a bound of {bound} proves nothing")
    mantissa, exponent = math.frexp(bound * (1 - 2.0**-20))
    return math.ldexp(math.floor(mantissa * 2**12), exponent - 12).hex()
