"""Results that several sections share; each is computed once, with study.once."""

from dataclasses import replace

import pandas as pd

from interp.measures.attention_ratios import raw_scores, token_ratios
from interp.measures.heads import HeadOutputs, category, group_metrics, head_outputs
from interp.measures.runs import heads_of, parts_of
from interp.measures.subsets import all_subsets, sample_subsets, select_groups
from interp.measures.survey import MODES, survey
from interp.models.subject import Subject
from interp.report.sections.base import Study
from interp.tasks import IGNORED, Batch
from interp.tasks.populations import InputsAsked, Population, choose, usual

WEIGHT = "attention weight"
LEAST_REFERENCE, MOST_REFERENCE = 1_000, 10_000
"""Limits on the number of training inputs for separators and means."""
SAMPLED_GROUPS = 320
"""Number of sampled groups of heads in Figure 4: 20 of each size for 16 heads."""


def weights(study: Study) -> str:
    """Return what the entries of attention patterns are."""
    return "raw score" if raw_scores(study.subject) else WEIGHT


def needs_two_answers(study: Study) -> str | None:
    """Return the reason why the logit difference of two answers is not a sum over heads at one position, or None."""
    if not study.task.contrast:
        return f"task {study.task.name} declares no contrast of two answers"
    return "answers are read at all positions" if study.subject.read_at == "all" else study.subject.no_decomposition()


def population(study: Study, split: str = "test") -> Population:
    """Return the inputs for measures of head outputs: tested on "test", separators fitted on "train"."""
    subject = study.subject
    whole = study.population("separation", fits=len(heads_of(subject)))
    if split != "train":
        return whole
    return reference(study, whole)


def reference(study: Study, tested: Population) -> Population:
    """Return training inputs for separators and means: as many as tested, or five times a whole test set."""
    if tested.kind == "dataset" and tested.n == tested.total:
        n = max(LEAST_REFERENCE, 5 * tested.n)  # training sets are larger than test sets
    else:
        n = max(tested.n, LEAST_REFERENCE) if tested.exact else tested.n
    return study.once(_reference, min(n, MOST_REFERENCE))


def _reference(study: Study, n: int) -> Population:
    fixed = study.subject.own_split
    if study.asked == InputsAsked() and n >= LEAST_REFERENCE:
        return usual(study.task, "train", fixed=fixed)  # as measures do by default
    return choose(study.task, lambda length: 0, InputsAsked(inputs=n), split="train", fixed=fixed, exact=False)


def rows(study: Study, split: str) -> Batch:
    """Return the inputs of `population`, as a batch."""
    return study.once(population, split).batch


def outputs(study: Study, split: str, read: int = 0) -> HeadOutputs:
    """Return the head outputs on a split, at one of the trained positions."""
    return head_outputs(study.subject, study.once(rows, split), read=read)


def n_reads(study: Study) -> int:
    """Return the number of trained positions per row (the smallest)."""
    return int((study.task.classes(study.once(rows, "test")) != IGNORED).sum(1).min())


def first_rows(outputs: HeadOutputs, n: int) -> HeadOutputs:
    """Return the first n rows."""
    cut = {name: getattr(outputs, name)[:n] for name in ("z", "contributions", "skip", "labels")}
    return replace(outputs, **cut)


def ratios(study: Study) -> pd.DataFrame:
    """Return each head's ratios of attention to the three counted tokens; columns head, w01, w02."""
    batch = None if study.subject.count_space else study.once(rows, "test")
    return token_ratios(study.subject, at=study.subject.read_at, tokens=study.task.counted, batch=batch)


def parts_population(study: Study) -> Population:
    """Return the inputs for measures of single heads and MLPs."""
    counted, fits = _counted(study.subject), len(heads_of(study.subject))
    passes = 2 + len(MODES) * (1 if counted else 1 + len(parts_of(study.subject)))
    return study.population("heads", passes, fits=fits, whole=not counted)


def looked_at(study: Study) -> Population:
    """Return the inputs for effects and attention: fewer than `parts_population` if the rest is in count space."""
    tested = study.once(parts_population)
    return study.population("heads", 4, most=5_000) if _counted(study.subject) else tested


def _counted(subject: Subject) -> bool:
    return subject.count_space and subject.read_at != "all"


def surveyed(study: Study) -> pd.DataFrame:
    """Return the table of measures.survey, shared by all sections on single parts."""
    tested = study.once(parts_population)
    looked = study.once(looked_at).batch
    return survey(study.subject, tested.batch, reference(study, tested).batch, looked=looked)


def metrics(study: Study, groups: int = SAMPLED_GROUPS) -> pd.DataFrame:
    """Return s-acc, l-acc and ROC AUC of single heads, of pairs, and of sampled groups of all sizes.

    groups: number of sampled groups; the column `sampled` marks them.
    """
    n_heads = study.once(outputs, "test").n_heads
    few = 2**n_heads - 1 <= groups
    sampled = all_subsets(n_heads) if few else sample_subsets(n_heads, groups, seed=0)
    small = select_groups("singles+pairs" if n_heads > 1 else "singles", n_heads)
    wanted = [*small, *(group for group in sampled if len(group) > 2 or group not in set(small))]
    table = group_metrics(study.once(outputs, "train"), study.once(outputs, "test"), wanted)
    return table.assign(sampled=table["heads"].isin(set(sampled)))


def singles(study: Study) -> pd.DataFrame:
    """Return one row per head: head, category, s_acc, l_acc, roc_auc."""
    table = study.once(metrics)
    alone = table[table["size"] == 1].reset_index(drop=True)
    heads = pd.DataFrame({"head": [group[0] for group in alone["heads"]]})
    heads["category"] = [category(value) for value in alone["s_acc"]]
    return heads.join(alone[["s_acc", "l_acc", "roc_auc"]])


def by_category(study: Study) -> list[int]:
    """Return the heads by decreasing s-acc, as in the figures: successful, mixed, failed."""
    heads = study.once(singles)
    return [int(head) for head in heads.sort_values("s_acc", ascending=False, kind="stable")["head"]]
