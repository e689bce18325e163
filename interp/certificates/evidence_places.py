"""Evidence that a model is right on every path of an automaton: the order of places, and coordinates of values.

Both are found by numerical measurement, as in the certificate. The checker derives sets and bounds itself.
"""

from typing import Any

import numpy as np

from interp.architecture.task_model import TaskModel
from interp.certificates.base import Certificate
from interp.certificates.check import Fault
from interp.certificates.check import Model as Checked
from interp.certificates.check.places import AUTOMATA, sentence
from interp.certificates.evidence import Finding, checked, register_evidence, stated
from interp.certificates.evidence_inputs import counterexamples
from interp.certificates.places import Proof, ReadProof
from interp.errors import InterpError, UnsupportedError
from interp.tasks.automata import declared


@register_evidence("every path of an automaton, by places and states")
def places_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Make evidence from which the checker can redo the proof over the reals."""
    if certificate.status == "refuted":
        return counterexamples(model, certificate)
    if certificate.status != "certified" or not certificate.worst_margin > 0:
        raise InterpError("evidence of this kind is for a model that is right on every input")
    name = model.task.name
    if name not in AUTOMATA:
        raise UnsupportedError(f"task {name} has no automaton that the checker knows: it knows {', '.join(AUTOMATA)}")
    mine = checked(model)
    try:
        mine.as_decoder()
    except Fault as fault:
        raise UnsupportedError(f"the checker does not read {model.spec.id} by places: {fault}") from None
    rows = AUTOMATA[name](mine)
    (paths,) = declared(model.task)
    if tuple(rows.order) != tuple(paths.order) or set(rows.reads) != set(paths.reads):
        raise UnsupportedError(f"the checker reads rows of task {name} in another order")
    proof = Proof.of(model, paths)
    parts = [[read.at, read.order, _coordinates(read)] for read in proof.reads]
    margin = float.fromhex(stated(certificate.worst_margin / 2))
    return Finding("places", {}, parts, margin, sentence(name, rows.claim), _reals)


def _coordinates(read: ReadProof) -> list[list[str]]:
    """Return the main directions of each head's values, as rows, in float32."""
    seen = read.real.values.value.shape[1]
    found = []
    for head, values in enumerate(read.real.values.value.numpy()):
        tables = [pair for pair in zip(read.paths.order, read.paths.following) if pair[0] < seen]
        used = np.concatenate([values[position, np.flatnonzero((table >= 0).any(0))] for position, table in tables])
        write = read.proof.net.write[head].numpy()
        _, _, turned = np.linalg.svd((used - used.mean(0)) @ write, full_matrices=False)
        along = write @ turned[: write.shape[0]].T  # coordinates of a value in the stream's main directions
        along = along / max(np.abs(along).max(), 1e-30)
        if not np.linalg.cond(along) < 1e6:
            along = np.eye(write.shape[0])
        found.append([float(x).hex() for x in along.T.astype(np.float32).ravel()])
    return found


def _reals(model: Checked) -> int:
    raise Fault("claims of this kind are over the reals")
