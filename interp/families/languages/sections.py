"""Sections on recognizers of strings: attention, components, lengths and number formats, sensitivity, exact values."""

from functools import partial

import pandas as pd
import torch

from interp.families.languages import measures
from interp.models.architecture.formulas import position_codes
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import PLAIN_POSITIONS, Construction
from interp.report import Report
from interp.report.aim import inputs
from interp.report.aim import tokens as token_ids
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support import words
from interp.tasks.structure import STRINGS


def needs_recognizer(study: Study) -> None:
    """Raise UnsupportedError if the model is not a recognizer of strings."""
    measures.language_of(study.subject.task_model)


strings = partial(section, task=STRINGS, needs=needs_recognizer)


def is_exact(study: Study) -> bool:
    """Return whether the weights are an exact construction."""
    return study.spec is not None and isinstance(study.spec.origin, Construction)


@strings("string_attention", title="Attention from where the answer is read", order=430, block="where")
def string_attention(study: Study, report: Report) -> None:
    """Show each head's attention on one string of 16 symbols, by position and summed by token."""
    model = study.subject.task_model
    task = measures.language_of(model)
    batch = task.strings(40, 16, seed=5)
    row = int(batch.labels.int().argmax())
    tokens = batch.tokens[row : row + 1, : int(batch.lengths[row])]
    frame = measures.attention_from_answer(model, tokens)
    report.heading("Attention from where the answer is read")
    frame["part"] = "head " + frame["layer"].astype(str) + "." + frame["head"].astype(str)
    frame["word"] = frame["position"].astype(str) + ": " + frame["token"]
    wide = frame.pivot(index="part", columns="position", values="weight")
    words = frame.drop_duplicates("position").sort_values("position")["word"].tolist()
    report.add_figure(
        "attention_from_answer",
        inputs(
            draw.heatmap(
                wide.to_numpy(), words, list(wide.index), "position and token", "head", "weight", square=False
            ),
            "tokens",
            token_ids(tokens[0].tolist()),
        ),
        f"One string of 16 symbols, {task.format(tokens[0])}: each head's attention from the position that is read.",
    )
    sums = frame.groupby(["part", "token"], as_index=False)["weight"].sum()
    report.add_figure(
        "attention_by_symbol",
        draw.bars(sums, "part", "weight", "token", "head", "total weight", stacked=True),
        "The same, summed by token. Uniform attention would give each token its share of the string.",
    )


@strings("string_components", title="What the heads read and write", order=530, block="where")
def string_components(study: Study, report: Report) -> None:
    """Show QK and OV between components of the proof (exact models) or token embeddings and position codes (others)."""
    model = study.subject.task_model
    exact = is_exact(study)
    table = measures.components_read(model, None if exact else _named_inputs(model))
    report.heading(
        "What the heads read and write",
        "QK: which component of the query meets which component of the key, and the coefficient of their product in "
        "the score. OV: which component is read, and where it is written. "
        + ("Components are those of the proof." if exact else
           "Components are the token embeddings and position codes. After a layer norm, vectors mix more than these."),
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
                + ("rows are queries, columns are keys." if circuit == "QK" else "rows are read, columns written."),
            )
    report.add_table("string_components", table, "Every coefficient that is not negligible.", max_rows=30)


def _named_inputs(model: TaskModel) -> dict[str, torch.Tensor]:
    """Return the embeddings of the symbols and marks, and the position codes if they are few."""
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


LENGTHS = (2, 4, 6, 10, 20, 30, 60, 100, 200, 400)
FORMATS = ("float64", "float32", "float16", "bfloat16")
LONGEST = 1000
EACH, SAMPLED = 60, 2000
SHARES = (-0.03, 1.05)
"""Range of the axes of accuracies and rates."""


@strings("string_lengths", title="Length and number format", order=140)
def string_lengths(study: Study, report: Report) -> None:
    """Show accuracy, loss and both kinds of errors on sampled strings of many lengths, in four number formats."""
    model = study.subject.task_model
    task = measures.language_of(model)
    made_for = {int(task.parameters[key]) for key in ("length", "test_length")}
    lengths = sorted(n for n in {*LENGTHS, *made_for} if n % 2 == 0 and 0 < n <= LONGEST)  # Dyck has no odd lengths
    most = model.spec.max_length
    if most is not None:  # the model has weights for this many positions
        lengths = [n for n in lengths if task.strings(1, n, seed=0).tokens.shape[1] <= most]
    beyond = ", also beyond the length that the model is made for" if max(lengths) > max(made_for) else ""
    own_format = str(model.embed.W_E.dtype).removeprefix("torch.")
    frames = []
    for name in (own_format, *(name for name in FORMATS if name != own_format)):
        # Half formats are slow on a CPU.
        allowed = lengths if name.startswith("float") and name != "float16" else [n for n in lengths if n <= 100]
        frames.append(measures.length_curve(model, allowed, (name,), n=EACH))
    curve = pd.concat(frames, ignore_index=True)
    baseline = task.strings(SAMPLED, lengths[-1], seed=1).labels.double().mean()
    always = max(float(baseline), 1 - float(baseline))
    report.heading(
        "Length and number format",
        f"{EACH} strings of each length from the language's distribution, with weights and arithmetic in each "
        f"number format{beyond}. Always giving the more frequent answer would be right on "
        f"{words.portion(always, 3)} of {SAMPLED:,} sampled strings of {lengths[-1]} symbols.",
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
            "Cross-entropy against length. A coin toss has 1 bit."
            + (" A proof of the sign alone leaves it near 1." if is_exact(study) else ""),
        )  # fmt: skip
    mine = curve[curve["dtype"] == own_format]
    kinds = mine.melt("length", ["false_accept_rate", "false_reject_rate"], "kind", "rate").dropna()
    kinds["kind"] = kinds["kind"].map({"false_accept_rate": "false accepts", "false_reject_rate": "false rejects"})
    if not kinds.empty:
        report.add_figure(
            "errors_by_length",
            draw.lines(kinds, "length", "rate", "kind", "symbols", "rate", "log", markers=True).update_yaxes(
                range=SHARES
            ),
            "False accepts as a share of the strings outside the language, and false rejects as a share of the "
            f"members ({own_format}).",
        )
    if (mine["smallest_logit"] > 0).any():
        report.add_figure(
            "smallest_logit",
            draw.lines(curve[curve["smallest_logit"] > 0], "length", "smallest_logit", "dtype", "symbols",
                       "smallest |logit|", "log", "log", markers=True),
            "The smallest margin of an answer.",
        )  # fmt: skip
    report.add_table("by_length", curve, "The same as numbers, with false accepts and false rejects.", max_rows=12)
    trained_on = None if is_exact(study) else int(task.parameters["length"])
    report.say(sentence(mine, trained_on), "what", ["accuracy_by_length", "cross_entropy_by_length"])
    report.add_fact("cross_entropy_bits", float(mine["cross_entropy_bits"].iloc[-1]))
    report.add_fact("accuracy_longest", float(mine["accuracy"].iloc[-1]))
    report.add_fact("longest", int(mine["length"].iloc[-1]))


def sentence(curve: pd.DataFrame, trained_on: int | None = None) -> str:
    """Return a sentence on the curve in the model's own number format. trained_on: length of the training strings."""
    low, longest = curve[curve["accuracy"] < 0.999], int(curve["length"].iloc[-1])
    if low.empty:
        where = f"Sampled strings of up to {longest} symbols are all classified correctly"
    else:
        worst = low.loc[low["accuracy"].idxmin()]
        accepts, rejects = int(low["false_accepts"].sum()), int(low["false_rejects"].sum())
        good = curve[curve["length"] < int(low["length"].iloc[0])]["length"]
        upto = f"Sampled strings of up to {int(good.max())} symbols are all classified correctly. " if len(good) else ""
        where = (
            f"{upto}By length, sampled accuracy is lowest at {int(worst['length'])} symbols "
            f"({words.share(float(worst['accuracy']), 3)}); in all {words.counted(accepts, 'false accept')} and "
            f"{words.counted(rejects, 'false reject')}"
        )
    mine = curve[curve["length"] == trained_on]
    trained = (
        ""
        if mine.empty or low.empty
        else f" At {trained_on} symbols, as in training, sampled accuracy is "
        f"{words.share(float(mine['accuracy'].iloc[0]), 3)}."
    )
    bits = float(curve["cross_entropy_bits"].iloc[-1])
    coin = (
        " (a coin toss has 1: the sign of the output is right, but its size is small)"
        if 0.9 < bits < 1 and low.empty
        else ""
    )
    loss = "" if bits != bits else f" Cross-entropy at {longest} symbols: {words.number(bits, 3)} bits{coin}."
    return f"{where} ({curve['dtype'].iloc[0]}).{trained}{loss}"


@strings("string_sensitivity", title="Sensitivity to one symbol", order=150)
def string_sensitivity(study: Study, report: Report) -> None:
    """Show how much one changed symbol changes the logit, by the number of tokens (Hahn 2020)."""
    model = study.subject.task_model
    limit = model.spec.max_length
    longest = 400 if limit is None else min(400, limit - measures.language_of(model).n_marks)
    lengths = [*(n for n in (4, 10, 20, 40, 100, 200) if n < longest), longest]
    frame = measures.sensitivity(model, lengths, strings=4, places=8)
    report.heading(
        "Sensitivity to one symbol",
        "How much the output changes when one symbol changes. For a fixed softmax transformer, the change is at most "
        "of order 1/n (Hahn 2020). Layer norm with a small eps and log-length scaling avoid the bound.",
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
            "Change of the logit when one symbol changes, against the number of tokens; over 4 strings and up to 8 "
            "places.",
        )
    report.add_table("sensitivity", frame, "If the bound holds, max_change_times_n stays bounded.")
    report.add_fact("sensitivity_times_n", float(frame["max_change_times_n"].iloc[-1]))


def needs(study: Study) -> str | None:
    """Require an exact recognizer whose proof gives the value of s."""
    needs_recognizer(study)
    if not is_exact(study):
        return "the model is not exact: there is no proof to compare it with"
    proof = measures.proof_of(study.subject.task_model)
    return None if proof.value else "the proof says where s is 0 or what its sign is, not its value"


@strings("string_value", title="The value s against its proof", order=720, block="how", needs=needs)
def string_value(study: Study, report: Report) -> None:
    """Show the component s in the model and in its proof, on 200 strings of 1 to 30 symbols."""
    model = study.subject.task_model
    task = measures.language_of(model)
    frame = measures.value_against_proof(model, task.strings(200, 30, 1, seed=3))
    report.heading("The value s against its proof")
    frame["answer"] = frame["label"].map({True: "in the language", False: "not in it"})
    report.add_figure(
        "value_against_proof",
        draw.scatter(frame, "proof", "s", "answer", "string", "s by the proof", "s in the model", diagonal=True),
        f"200 strings of 1 to 30 symbols; the largest difference is {frame['error'].abs().max():.2g}.",
    )
    report.add_table("value_against_proof", frame, "String by string.", max_rows=10)
