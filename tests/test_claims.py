"""The ledger of claims (analyses/claims.py): complete, consistent, and measured again where that takes seconds."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ANALYSES = Path(__file__).resolve().parent.parent / "analyses"
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")
ROUNDING = 1e-9
"""Numbers below this are rounding errors, which machines need not share."""


@pytest.fixture(scope="module")
def ledger() -> ModuleType:
    sys.path.insert(0, str(ANALYSES))
    try:
        return importlib.import_module("claims")
    finally:
        sys.path.remove(str(ANALYSES))


def _cheap() -> list[str]:
    sys.path.insert(0, str(ANALYSES))
    try:
        return [name for name, check in importlib.import_module("claims").CHECKS.items() if check.cheap]
    finally:
        sys.path.remove(str(ANALYSES))


def _numbers(text: str) -> list[float]:
    return [float(word.replace(",", "").rstrip(".")) for word in NUMBER.findall(text)]


def test_every_claim_has_a_check(ledger: ModuleType) -> None:
    claims = ledger.read()
    assert len(claims) >= 100
    assert len(_cheap()) >= 40
    for claim in claims:
        assert {"id", "paper", "where", "claim", "published"} <= set(claim), claim["id"]
        assert claim["paper"] in ledger.PAPERS
        assert claim["id"].startswith(f"{claim['paper']}.")


def test_every_claim_is_checked_or_says_why_it_differs(ledger: ModuleType) -> None:
    for claim in ledger.read():
        assert ledger.status_of(claim) != "not checked", claim["id"]
        assert (ledger.status_of(claim) == "not reproduced") == ("why" in claim), claim["id"]
        if "why" in claim:  # what is open, what was tried in numbers, what would decide it
            assert re.search(r"would decide it", claim["why"]), claim["id"]
            assert len(_numbers(claim["why"])) >= 3, claim["id"]


def test_the_readme_counts_what_the_ledger_counts(ledger: ModuleType) -> None:
    claims = [claim for claim in ledger.read() if claim["paper"] != "ours"]
    total = ledger.counts_of(claims).sum()
    said = (
        f"Of the {len(claims)} claims of four papers in the [ledger](analyses/claims.toml), {total['holds']} hold, "
        f"{total['holds corrected']} hold corrected, {total['fails']} fail and {total['not reproduced']} are not "
        "reproduced"
    )
    assert said in " ".join((ANALYSES.parent / "README.md").read_text("utf-8").split())


def test_no_claim_is_left_out_or_doubled(ledger: ModuleType, tmp_path: Path) -> None:
    claims = ledger.read()
    twice = tmp_path / "twice.toml"
    ledger.save([*claims, claims[0]], twice)
    with pytest.raises(Exception, match="claims twice: count01"):
        ledger.read(twice)
    fewer = tmp_path / "fewer.toml"
    ledger.save(claims[1:], fewer)
    with pytest.raises(Exception, match="checks without a claim"):
        ledger.read(fewer)


def test_the_page_counts_every_claim_once(ledger: ModuleType) -> None:
    claims = ledger.read()
    report = ledger.page(claims)
    assert int(report.tables["counts"].drop(columns="paper").to_numpy().sum()) == len(claims)
    assert report.html().index("counts") < report.html().index("--check")
    assert sum(len(report.tables[paper]) for paper in ledger.PAPERS) == len(claims)
    assert report.verdict.startswith(f"{len(claims)} claims: ")


@pytest.mark.slow
@pytest.mark.parametrize("name", _cheap())
def test_a_cheap_check_finds_what_the_ledger_says(name: str, ledger: ModuleType) -> None:
    claim = next(claim for claim in ledger.read() if claim["id"] == name)
    found = ledger.as_row(ledger.CHECKS[name].run())
    assert found["status"] == claim["found"]["status"], found
    assert found["n"] == claim["found"]["n"]
    now, before = (_numbers(str(row["value"])) for row in (found, claim["found"]))
    assert len(now) == len(before), found
    for ours, theirs in zip(now, before):
        assert ours == pytest.approx(theirs, rel=0.05, abs=ROUNDING)
