"""Check the claim of a file by its kind, and print the sentence that holds."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
from collections.abc import Callable
from typing import Any

from .counts import counts, maxima
from .enclosures import FORMATS, ONE, about, fixed
from .inputs import WEAKER, Found, inputs, strings
from .model import Model
from .places import places
from .reading import Fault, fields, hexadecimal, need, read
from .sequences import sequences
from .weights import compare_checkpoint

SCHEMA = 3
KINDS: dict[str, Callable[..., Found]] = {
    "inputs": inputs, "strings": strings, "counts": counts, "maxima": maxima, "sequences": sequences,
    "places": places,
}  # fmt: skip
_work: Callable[..., Any] = print


def _begin(work: Callable[..., Any]) -> None:
    global _work
    _work = work


def _do(items: Any) -> Any:
    return _work(*items)


def check(evidence: dict[str, Any], processes: int = 1) -> tuple[Model, str, float]:
    """Return the model, the sentence that was proved, and the bound on rounding. Raises Fault if a step fails."""
    schema, name, spec, weights, digest, claim, parts = fields(
        evidence, "evidence model spec weights weights_sha256 claim parts", "the evidence"
    )
    need(
        type(schema) is int and schema == SCHEMA, f"evidence = {schema!r:.40} must be {SCHEMA}, which this file checks"
    )
    kind, domain, number_format, margin, sentence = fields(claim, "kind domain format margin sentence", "the claim")
    need(type(kind) is str and kind in KINDS, f"claim.kind = {kind!r:.40} must be one of {', '.join(KINDS)}")
    need(type(number_format) is str and number_format in FORMATS, f"claim.format = {number_format!r:.40} is unknown")
    least_margin = fixed(hexadecimal(margin, "claim.margin"), "claim.margin")
    need(least_margin > 0, f"claim.margin = {margin} must be positive")
    model = Model(spec, weights, name, digest, FORMATS[number_format])
    need(model.decoder is None or kind == "places", f"claims of kind {kind} do not cover a model with these parts")

    def spread(work: Callable[..., Any], items: list[Any]) -> list[Any]:
        many = min(processes, len(items), os.cpu_count() or 1)  # the pool starts all of its processes at once
        if many <= 1:
            return [work(*item) for item in items]
        with concurrent.futures.ProcessPoolExecutor(many, initializer=_begin, initargs=(work,)) as pool:
            try:
                return list(pool.map(_do, items, chunksize=max(1, len(items) // (many * 16))))
            except concurrent.futures.BrokenExecutor:
                raise Fault("a process stopped before it finished; nothing was proved") from None

    proved, rounding = KINDS[kind](model, domain, parts, least_margin, spread)
    need(least_margin > rounding, f"the margin {margin} does not exceed the rounding bound {about(rounding)}")
    run = "" if number_format == "reals" else f", and the answers are the same as run in {number_format}"
    proved = f"{proved}; over the reals by {margin} at least{run}"
    need(sentence == proved, f"the claim says {sentence!r:.300}; the checked sentence is {proved!r}")
    return model, proved, rounding / ONE


def premise(model: Model, kind: str, rounding: float) -> str:
    """Return the assumptions behind a claim, as one line."""
    reals = f"kind: {kind}; over the reals: nothing is assumed"
    if not model.f.bits:
        return f"{reals}; in a number format: nothing is claimed, and rounding is not bounded"
    name = next(name for name, known in FORMATS.items() if known is model.f)
    return (f"{reals}; in {name}: the premise about formats, by which rounding moves a difference of two outputs by "
            f"less than {rounding:.3g}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="check", description="Check the evidence of a certificate.")
    parser.add_argument("evidence", help="a file that certificate.evidence wrote")
    parser.add_argument("--sha256", help="expected hash of the model's spec and weights")
    parser.add_argument("--checkpoint", help="a safetensors file that must have the same weights")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    try:
        need(arguments.processes >= 1, "--processes must be at least 1")
        evidence = read(arguments.evidence)
        model, proved, rounding = check(evidence, arguments.processes)
        if arguments.sha256 is not None:
            need(arguments.sha256 == model.sha256, f"the model has SHA-256 {model.sha256}, not the one given")
        files = [] if arguments.checkpoint is None else compare_checkpoint(model, arguments.checkpoint)
    except Fault as fault:
        message = "".join(c if c.isprintable() else "?" for c in str(fault))  # a hostile file may contain line breaks
        print(f"DOES NOT HOLD: {message}")
        return 1
    print("\n".join([premise(model, evidence["claim"]["kind"], rounding), *files]))
    # The last line is complete: it says where the labels come from, and names the spec and the weights.
    print(
        f"{proved if proved.startswith(WEAKER) else f'holds: {proved}'}; model {model.name} of SHA-256 {model.sha256}"
    )
    return 0
