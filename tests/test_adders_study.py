"""The numbers of the study of adders, as they were saved, against what the documentation says of them."""

from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent
PAGE = " ".join((ROOT / "docs" / "adders.md").read_text().split())


def test_what_the_page_says_of_the_study() -> None:
    table = pd.read_csv(ROOT / "analyses" / "sweeps" / "adders.csv", dtype={"wrong at least": object})
    passed = table[table["wrong in the test"] == 0]
    assert (
        f"Of {len(table)} adders of {table['parameters'].iloc[0]} parameters, {len(passed)} make no mistake on 10,010 "
        "random pairs" in PAGE
    )
    assert sorted(passed["status"]) == ["certified", "refuted"]
    wrong = passed[passed["status"] == "refuted"].iloc[0]
    assert f"wrong on at least {int(wrong['wrong at least']):,}" in PAGE
    row = wrong["counterexample"].split(":")[0].split()
    a, b = (int("".join(row[start : start + 10])[::-1]) for start in (0, 11))
    assert f"among them {a:,} + {b:,}" in PAGE
    chains = pd.read_csv(ROOT / "analyses" / "sweeps" / "adders_by_chain.csv")
    errs = chains[(chains["seed"] == wrong["seed"]) & (chains["wrong"] > 0)]
    assert errs["chain"].min() == 2
    assert (chains[chains["status"] == "certified"]["wrong"] == 0).all()
