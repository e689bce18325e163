"""Evidence of certificates on strings: the classes of strings that the checker runs, and the model's errors."""

from typing import Any

from interp.certificates.certificate import Certificate
from interp.certificates.check.inputs import each_string, one_average, one_class
from interp.certificates.check.model import Model
from interp.certificates.check.tasks import LANGUAGES
from interp.certificates.evidence import Finding, register_evidence, round_bound_down
from interp.certificates.evidence_parts import counterexamples, rows_of, table, work
from interp.errors import InterpError
from interp.families.languages.certificates.enumerated import margins_of
from interp.models.architecture.task_model import TaskModel

EACH = 10
"""Largest length for PALINDROME, which is checked string by string."""
MOST_WORK = 1.5e8
"""Largest number of products for checking string by string, about half a minute of one process."""


@register_evidence("strings by counts and seen positions", "proof of PALINDROME")
def strings_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Make evidence by classes of strings, with one mean or one string per class.

    The checker does not know the proof of PALINDROME, so it runs every string of up to EACH symbols.
    """
    if certificate.status != "certified":
        raise InterpError(f"evidence on strings needs a certified model, but this one is {certificate.status}")
    lengths = certificate.tables["lengths"]
    ways = {"first": "class", "none": "class", "halves": "string", "mirror": "string"}
    by = ways.get(model.spec.positions, "average")
    if by == "string":
        lengths = lengths[lengths["length"] <= EACH]
    return finding(model, int(lengths["length"].max()), by, [], float(lengths["smallest_margin"].min()))


@register_evidence("every string, with a rounding bound")
def every_string_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Make evidence for learned recognizers: every string, or one per number of ones; a table for other languages."""
    task: Any = model.task
    longest = int(certificate.tables["lengths"]["length"].max())
    if task.name not in LANGUAGES or model.spec.readout_at != "[CLS]":
        if int(certificate.n_inputs) > 1 << 13:
            return counterexamples(model, certificate)
        return table(model, (row for n in range(1, longest + 1) for row in rows_of(model, task.enumerate(n))))
    by = "class" if model.spec.positions in ("none", "first") and task.name != "palindrome" else "string"
    if by == "string":  # the claim may be about shorter strings than the certificate
        longest = max(n for n in range(1, longest + 1) if n == 1 or work(model, 2 ** (n + 1), n + 2) <= MOST_WORK)
    wrong, least = [], float("inf")
    for length in range(1, longest + 1):
        margin, sizes = margins_of(model, length)
        wrong.append([length, int(sizes[margin <= 0].sum())])
        least = min(least, float(abs(margin).min()))
    errors = [pair for pair in wrong if pair[1]]
    if certificate.status == "refuted" and not errors:
        return counterexamples(model, certificate)
    return finding(model, longest, by, errors, least)


def finding(model: TaskModel, longest: int, by: str, errors: list[list[int]], margin: float) -> Finding:
    subject = f"{model.task.name}: right on every string of 1 to {longest} symbols, {2 ** (longest + 1) - 2} strings"
    subject += ", rows without padding"
    if errors:
        each = "; ".join(f"{n} symbols: {bad}" for n, bad in errors)
        subject += f" but exactly {sum(bad for _, bad in errors)}, on which it errs ({each})"
    domain = {"longest": longest, "by": by, "errors": errors}

    def rounding(checked: Model) -> int:
        """Return twice the largest bound on some of the shortest and longest strings, with few, half or many ones."""
        check = {"average": one_average, "class": one_class}.get(by)
        some = [(n, [first, *[1] * ones]) for n in (1, 2, longest) for first in (0, 1) for ones in {0, n // 2, n - 1}]
        some = [(n, start if check else (start + [0] * n)[:n]) for n, start in some if n <= longest and len(start) <= n]
        return 2 * max((check or each_string)(checked, 1, n, start)[2] for n, start in some)

    return Finding("strings", domain, [], float.fromhex(round_bound_down(margin)), subject, rounding)
