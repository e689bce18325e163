"""Every checkable claim of the four papers: what is printed, what we find, and the command that checks it.

python analyses/claims.py --out out/claims                      # the ledger as a page and a table
python analyses/claims.py --check counting.a21 memorization     # measure claims again, by id or the start of one
python analyses/claims.py --check all --quick                   # all that take seconds (else up to hours)

The ledger is analyses/claims.toml. --check writes what it found there, under [claim.found]; nobody else does. Checks of
what takes longer than minutes read the table of the study that measured it, in analyses/sweeps. A claim that is not
reproduced says why, in its own words: what the paper leaves open, what was tried, what would decide it. Smoke: three
checks, and the file stays as it is.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w
from claim_checks import count01, counting, languages, memorization, ours  # noqa: F401  (they register their checks)
from claim_checks.base import CHECKS, STATUSES, Found
from rich.console import Console
from rich.progress import track
from shared.script import write

from interp.errors import InterpError, one_of
from interp.report import Report
from interp.support import figures as draw
from interp.support.files import write_atomically

LEDGER = Path(__file__).resolve().parent / "claims.toml"
HEADER = """\
# Claims of four papers, and our own. `python analyses/claims.py` shows them, `--check NAME` measures again.
# What stands in [claim.found] is written by that command and by nothing else.

"""
PAPERS = {
    "count01": "Zsámboki et al. 2025, Count01",
    "counting": "Behrens et al. 2024, histogram counting",
    "languages": "Nowak et al. 2022, soft attention",
    "memorization": "Dana 2024, memorization",
    "ours": "This repository",
}
SMOKE = ("counting.a21", "languages.hahn", "memorization.kl_identity")

Claim = dict[str, Any]


def read(path: Path = LEDGER) -> list[Claim]:
    """The claims of the ledger. Raises InterpError if an id is double, or a claim has no check."""
    claims: list[Claim] = tomllib.loads(path.read_text("utf-8"))["claim"]
    ids = [claim["id"] for claim in claims]
    if double := {name for name in ids if ids.count(name) > 1}:
        raise InterpError(f"{path} has claims twice: {', '.join(sorted(double))}")
    if unchecked := [name for name in ids if name not in CHECKS]:
        raise InterpError(f"claims without a check: {', '.join(unchecked)}")
    if lost := set(CHECKS) - set(ids):
        raise InterpError(f"checks without a claim: {', '.join(sorted(lost))}")
    return claims


def save(claims: list[Claim], path: Path = LEDGER) -> None:
    write_atomically(path, HEADER + tomli_w.dumps({"claim": claims}))


def chosen(claims: list[Claim], names: list[str], quick: bool) -> list[str]:
    """Ids of the claims to measure: named, or all that start with a name; quick leaves the expensive ones out."""
    known = [claim["id"] for claim in claims if claim["id"] in CHECKS]
    found: list[str] = []
    for name in names:
        mine = [known_id for known_id in known if name == "all" or known_id == name or known_id.startswith(f"{name}.")]
        if not mine:
            raise InterpError(one_of("claim with a check", name, known))
        found += [known_id for known_id in mine if known_id not in found]
    return [name for name in found if not quick or CHECKS[name].cheap]


def as_row(found: Found) -> dict[str, str | int]:
    row: dict[str, str | int] = {"value": found.value, "status": found.status, "n": found.n}
    return row | ({"spread": found.spread} if found.spread else {})


def status_of(claim: Claim) -> str:
    return str(claim.get("found", {}).get("status", "not checked"))


def table_of(claims: list[Claim]) -> pd.DataFrame:
    """One row a claim."""
    rows = []
    for claim in claims:
        found = claim.get("found", {})
        spread = f" ({found['spread']})" if "spread" in found else ""
        rows.append(
            {
                "claim": claim["claim"],
                "status": status_of(claim),
                "published": claim["published"],
                "ours": f"{found.get('value', '')}{spread}",
                "n": found.get("n", 0),
                "where": claim["where"],
                "convention": claim.get("convention", ""),
                "command": f"python analyses/claims.py --check {claim['id']}",
                "paper": claim["paper"],
            }
        )
    return pd.DataFrame(rows)


def counts_of(claims: list[Claim]) -> pd.DataFrame:
    """Claims by paper and status; a status that none has is left out."""
    found = pd.DataFrame({"paper": [PAPERS[c["paper"]] for c in claims], "status": [status_of(c) for c in claims]})
    counts = found.groupby(["paper", "status"]).size().unstack(fill_value=0)
    return counts.reindex(PAPERS.values(), fill_value=0)[[name for name in STATUSES if name in counts]]


def verdict_of(claims: list[Claim]) -> str:
    totals = ", ".join(f"{n} {status}" for status, n in counts_of(claims).sum().items())
    return f"{len(claims)} claims: {totals}."


def page(claims: list[Claim]) -> Report:
    """The ledger as a report: counts by status, what is not reproduced and why, then paper by paper."""
    table, counts = table_of(claims), counts_of(claims)
    report = Report("The ledger of claims", "what four papers and this repository state, and what we find")
    report.verdict = verdict_of(claims)
    report.heading(
        "By paper",
        "Holds corrected: true after an erratum. Fails: false, with evidence. Not reproduced: our runs differ from the "
        "published ones, which need not mean that those are wrong.",
    )
    report.add_table("counts", counts.reset_index(), "Claims by paper and status.")
    long = counts.reset_index().melt("paper", var_name="status", value_name="claims")
    report.add_figure("counts", draw.bars(long, "paper", "claims", "status", y_title="claims"), "The same as bars.")
    report.heading("Not reproduced: what is open, what was tried, what would decide it")
    for claim in claims:
        if "why" in claim:
            report.add_text(f"{claim['id']}: {claim['claim']} {claim['why']}")
    for paper, title in PAPERS.items():
        mine = table[table["paper"] == paper].drop(columns="paper")
        report.heading(title)
        report.add_table(paper, mine, "n: models, seeds or instances behind our value.", max_rows=len(mine))
    return report


def measure(claims: list[Claim], names: list[str], keep: bool) -> bool:
    """Run checks, keep what each finds in the ledger at once; False where the status of one has changed."""
    same, by_id = True, {claim["id"]: claim for claim in claims}
    console = Console(stderr=True)
    for name in track(names, "claims", console=console, disable=not console.is_terminal):
        before, found = by_id[name].get("found", {}), as_row(CHECKS[name].run())
        if before and before["status"] != found["status"]:
            same = False
            print(f"{name}: {before['status']} before, {found['status']} now", file=sys.stderr)
        by_id[name]["found"] = found
        if keep:
            save(claims)
        print(f"{name}: {found['status']}: {found['value']}")
    return same


def main() -> None:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(description=lines[0])
    parser.add_argument("--out", type=Path, help="folder for report.html and the tables")
    parser.add_argument("--check", nargs="+", default=[], metavar="NAME", help="claims to measure again, or all")
    parser.add_argument("--quick", action="store_true", help="only checks that take seconds")
    parser.add_argument("--smoke", action="store_true", help="three checks, nothing is written to the ledger")
    given = parser.parse_args()
    try:
        claims, same = read(), True
        names = list(SMOKE) if given.smoke else chosen(claims, given.check, given.quick)
        if names:
            same = measure(claims, names, keep=not given.smoke)
        report = page(claims)
        if given.out is not None:
            write(report, given.out)
    except InterpError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(2)
    print(report.verdict)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
