"""The report on recognizers of formal languages, exact and learned (Nowak et al. 2022; Chiang and Cholak 2022)."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from interp._analyze import generic
from interp.architecture.encoder import encoder_refusal
from interp.architecture.formulas import position_codes
from interp.architecture.task_model import TaskModel
from interp.certificates import Certificate
from interp.errors import UnsupportedError
from interp.measures import languages as measures
from interp.measures.languages_learned import stacked_logits
from interp.measures.subject import Subject
from interp.report import Report
from interp.report import figures as draw
from interp.spec import PLAIN_POSITIONS, Construction
from interp.tasks import Language

LENGTHS = (2, 4, 6, 10, 20, 30, 60, 100, 200, 400)
FORMATS = ("float64", "float32", "float16", "bfloat16")
LONGEST = 1000
STRINGS = 60
SHARES = (-0.03, 1.05)
"""The range of axes of accuracies and rates."""


def fill(report: Report, subject: Subject) -> dict[str, Any]:
    """All sections; returns the row of the comparison table."""
    try:
        model = subject.task_model
        task = measures.language_of(model)
    except UnsupportedError as error:
        row = generic.fill(report, subject)
        report.add_text(f"The study of recognizers does not apply: {error}.")
        return row
    row = _accuracy(report, subject, model, task)
    curve = _lengths(report, model, task)
    _value(report, model, task)
    _attention(report, model, task)
    steep = _sensitivity(report, model)
    _components(report, model)
    report.verdict = _verdict(row, curve, model, task)
    return row | {
        "cross_entropy_bits": float(curve["cross_entropy_bits"].iloc[-1]),
        "accuracy_longest": float(curve["accuracy"].iloc[-1]),
        "longest": int(curve["length"].iloc[-1]),
        "sensitivity_times_n": float(steep["max_change_times_n"].iloc[-1]),
    }


def _accuracy(report: Report, subject: Subject, model: TaskModel, task: Language) -> dict[str, Any]:
    """A certificate where a method holds, else a sample of what the model is tested on."""
    found = generic.certificate_of(subject)
    if isinstance(found, Certificate):
        row = generic.add_accuracy(report, subject, found)
        if "lengths" in found.tables:
            lengths = found.tables["lengths"]
            both = lengths.melt("length", ["smallest_margin", "rounding"], "quantity", "value")
            both["quantity"] = both["quantity"].str.replace("_", " ")
            report.add_figure(
                "margins",
                draw.lines(
                    both[both["value"] > 0], "length", "value", "quantity", "symbols", "size of the logit", y_type="log"
                ),
                "The margin of the string nearest to a wrong answer, and how much rounding may move it, in any order "
                "of evaluation. Where the margin is larger, every string of that length is right.",
            )  # fmt: skip
        return row | {"domain": found.domain}
    batch = task.sample(1000, "test", seed=0)
    # On distinct rows where these decide the output: long strings are then as cheap as short ones.
    shared = encoder_refusal(model.spec) is None
    kinds = measures.errors(model, batch, stacked_logits([model], batch)[0] if shared else None)
    report.section("Accuracy on a sample", f"Not exact: {found}.")
    table = pd.DataFrame([{"length": int(batch.lengths.max()) - task.n_marks, **kinds}])
    report.add_table("accuracy", table, "1,000 strings of the test distribution; the interval is Wilson's, 95%.")
    tested = "1,000 strings as it is tested on"
    return {"accuracy": kinds["accuracy"], "certificate": "none", "exact": False, "domain": tested}


def _lengths(report: Report, model: TaskModel, task: Language) -> pd.DataFrame:
    """Accuracy, loss and both kinds of errors against length and number format; returns the model's own format."""
    made_for = {int(task.parameters[key]) for key in ("length", "test_length")}
    lengths = sorted(n for n in {*LENGTHS, *made_for} if n % 2 == 0 and 0 < n <= LONGEST)  # Dyck has no odd lengths
    own = str(model.embed.W_E.dtype).removeprefix("torch.")
    frames = []
    for name in (own, *(name for name in FORMATS if name != own)):
        # Half formats are slow on a CPU.
        allowed = lengths if name.startswith("float") and name != "float16" else [n for n in lengths if n <= 100]
        frames.append(measures.length_curve(model, allowed, (name,), n=STRINGS))
    curve = pd.concat(frames, ignore_index=True)
    baseline = task.strings(2000, lengths[-1], seed=1).labels.double().mean()
    always = max(float(baseline), 1 - float(baseline))
    report.section(
        "Length and number format",
        f"{STRINGS} strings of each length from the language's distribution, with the weights rounded to each format "
        f"and all arithmetic in it, also beyond the length for which the model is made. Always giving the more "
        f"frequent answer would be right on {always:.3f}.",
    )
    report.add_figure(
        "accuracy_by_length",
        draw.lines(curve, "length", "accuracy", "dtype", "symbols", "accuracy", "log", markers=True).update_yaxes(
            range=SHARES
        ),
        "Accuracy against length, in four number formats.",
    )
    if (curve["cross_entropy_bits"] > 0).any():  # NaN for an indicator
        report.add_figure(
            "cross_entropy_by_length",
            draw.lines(curve[curve["cross_entropy_bits"] > 0], "length", "cross_entropy_bits", "dtype", "symbols",
                       "cross-entropy (bits)", "log", "log", markers=True),
            "Cross-entropy against length: 1 bit is a coin's. A proof of the sign alone leaves it near 1.",
        )  # fmt: skip
    mine = curve[curve["dtype"] == own]
    kinds = mine.melt("length", ["false_accept_rate", "false_reject_rate"], "kind", "rate").dropna()
    kinds["kind"] = kinds["kind"].map({"false_accept_rate": "false accepts", "false_reject_rate": "false rejects"})
    if not kinds.empty:
        report.add_figure(
            "errors_by_length",
            draw.lines(kinds, "length", "rate", "kind", "symbols", "rate", "log", markers=True).update_yaxes(
                range=SHARES
            ),
            f"Share of the strings outside the language that are accepted, and of members that are rejected ({own}).",
        )
    if (mine["smallest_logit"] > 0).any():
        report.add_figure(
            "smallest_logit",
            draw.lines(curve[curve["smallest_logit"] > 0], "length", "smallest_logit", "dtype", "symbols",
                       "smallest |logit|", "log", "log", markers=True),
            "The answer that is nearest to a wrong one.",
        )  # fmt: skip
    report.add_table("by_length", curve, "The same as numbers, false accepts and false rejects apart.", max_rows=12)
    return mine


def _value(report: Report, model: TaskModel, task: Language) -> None:
    """The component s beside the proof."""
    if not isinstance(model.spec.origin, Construction):
        return
    report.section("The value s against its proof")
    try:
        batch = task.strings(200, 30, 1, seed=3)
        frame = measures.value_against_proof(model, batch)
    except UnsupportedError as error:
        report.add_text(f"Not shown: {error}.")
        return
    frame["answer"] = frame["label"].map({True: "in the language", False: "not in it"})
    report.add_figure(
        "value_against_proof",
        draw.scatter(frame, "proof", "s", "answer", "string", "s by the proof", "s in the model", diagonal=True),
        f"200 strings of 1 to 30 symbols; the largest difference is {frame['error'].abs().max():.2g}.",
    )
    report.add_table("value_against_proof", frame, "String by string.", max_rows=10)


def _attention(report: Report, model: TaskModel, task: Language) -> None:
    """What each head looks at from where the answer is read."""
    report.section("Attention from where the answer is read")
    batch = task.strings(40, 16, seed=5)
    row = int(batch.labels.int().argmax())
    tokens = batch.tokens[row : row + 1, : int(batch.lengths[row])]
    try:
        frame = measures.attention_from_answer(model, tokens)
    except UnsupportedError as error:
        report.add_text(f"Not shown: {error}.")
        return
    frame["part"] = "layer " + frame["layer"].astype(str) + ", head " + frame["head"].astype(str)
    frame["word"] = frame["position"].astype(str) + ": " + frame["token"]
    wide = frame.pivot(index="part", columns="position", values="weight")
    words = frame.drop_duplicates("position").sort_values("position")["word"].tolist()
    report.add_figure(
        "attention",
        draw.heatmap(wide.to_numpy(), words, list(wide.index), "position and token", "head", "weight", square=False),
        f"One string of 16 symbols, {task.format(tokens[0])}: the weights of the row that is read, head by head.",
    )
    sums = frame.groupby(["part", "token"], as_index=False)["weight"].sum()
    report.add_figure(
        "attention_by_token",
        draw.bars(sums, "part", "weight", "token", " ", "total weight", stacked=True),
        "The same, added up by token: uniform attention gives each token its share of the string.",
    )


def _sensitivity(report: Report, model: TaskModel) -> pd.DataFrame:
    """Hahn's bound, measured."""
    lengths = [4, 10, 20, 40, 100, 200, 400]
    frame = measures.sensitivity(model, lengths, strings=4, places=8)
    report.section(
        "Sensitivity to one symbol",
        "How far one changed symbol moves the output. For a fixed softmax transformer it is at most of the order of "
        "1/n (Hahn 2020); layer norm with a small eps and log-length scaling are ways around the bound.",
    )
    falling = float(frame["max_change"].iloc[0]) * frame["n"].iloc[0] / frame["n"]
    bound = pd.DataFrame({"n": frame["n"], "change": falling, "what": "falling like 1/n"})
    shown = [frame.assign(change=frame[column], what=name)[["n", "change", "what"]]
             for column, name in (("max_change", "largest change"), ("mean_change", "mean change"))]  # fmt: skip
    both = pd.concat([*shown, bound], ignore_index=True)
    both = both[both["change"] > 0]
    if not both.empty:
        report.add_figure(
            "sensitivity",
            draw.lines(both, "n", "change", "what", "n (tokens)", "change of the logit", "log", "log", markers=True),
            "Change of the logit by one symbol against the number of tokens, over 4 strings and up to 8 places.",
        )
    report.add_table("sensitivity", frame, "max_change_times_n stays bounded where the bound holds.")
    return frame


def _components(report: Report, model: TaskModel) -> None:
    """QK and OV of each head between named components of the residual stream."""
    exact = isinstance(model.spec.origin, Construction)
    table = measures.components_read(model, None if exact else _named_inputs(model))
    report.section(
        "What the heads read and write",
        "QK: which component of the asking row meets which of the row it looks at, with its coefficient in the score. "
        "OV: which component is moved, and where it is written. "
        + ("Components are those of the proof." if exact else
           "Components are the token embeddings and position codes; after a layer norm rows are mixtures of more."),
    )  # fmt: skip
    table = table[table["coefficient"].abs() > 1e-3 * table["coefficient"].abs().max()]
    if table.empty:
        report.add_text("No head reads or writes any of them.")
        return
    if not exact:
        for circuit in ("QK", "OV"):
            part = table[table["circuit"] == circuit]
            names = list(dict.fromkeys([*part["source"], *part["target"]]))
            index = pd.MultiIndex.from_product([range(len(model.spec.layers)), range(model.spec.layers[0].n_heads),
                                                names, names], names=["layer", "head", "source", "target"])  # fmt: skip
            full = part.set_index(["layer", "head", "source", "target"])["coefficient"].reindex(index, fill_value=0.0)
            cells = full.reset_index()
            cells["head"] = cells["layer"].astype(str) + "." + cells["head"].astype(str)
            report.add_figure(
                f"components_{circuit}",
                draw.circuit(cells, "source", "target", "coefficient", "score" if circuit == "QK" else "coefficient"),
                f"{circuit} of each head (layer.head): "
                + ("rows ask, columns are looked at." if circuit == "QK" else "rows are read, columns written."),
            )
    report.add_table("components", table, "Every coefficient that is not negligible.", max_rows=30)


def _named_inputs(model: TaskModel) -> dict[str, torch.Tensor]:
    """Embeddings of the symbols and marks, and the position codes where these are few."""
    task, spec = model.task, model.spec
    named = {
        token: model.embed.W_E[at].detach().double().cpu()
        for at, token in enumerate(task.vocabulary)
        if token != task.pad
    }
    if spec.positions not in PLAIN_POSITIONS:
        table, _ = position_codes(spec.positions, 8, spec.d_model)
        codes = [code for code in table if code.abs().max() > 0]
        if len(codes) <= 4:
            named |= {f"{spec.positions} code {at}".removesuffix(" 0"): code for at, code in enumerate(codes)}
    return named


def _verdict(row: dict[str, Any], curve: pd.DataFrame, model: TaskModel, task: Language) -> str:
    name = task.name.upper()
    low = curve[curve["accuracy"] < 0.999]
    longest = int(curve["length"].iloc[-1])
    if row["certificate"] == "certified":
        how = f"recognizes {name}, certified on {row['domain']}"
    elif row["accuracy"] == 1.0:
        how = f"recognizes {name} on all of {row['domain']}"
    else:
        accuracy = f"{row['accuracy']:.3f}" if isinstance(row["accuracy"], float) else f"in {row['accuracy']}"
        how = f"answers {name} with accuracy {accuracy} on {row['domain']}"
    if low.empty:
        where = f"Sampled strings of up to {longest} symbols are all answered rightly"
    else:
        worst = low.loc[low["accuracy"].idxmin()]
        accepts, rejects = int(low["false_accepts"].sum()), int(low["false_rejects"].sum())
        where = (
            f"By length, sampled accuracy is lowest at {int(worst['length'])} symbols ({worst['accuracy']:.3f}); "
            f"in all {accepts} false accepts and {rejects} false rejects"
        )
    bits = float(curve["cross_entropy_bits"].iloc[-1])
    loss = "" if bits != bits else f" Cross-entropy at {longest} symbols: {bits:.3g} bits."
    return f"The model {how}. {where} ({curve['dtype'].iloc[0]}).{loss}"
