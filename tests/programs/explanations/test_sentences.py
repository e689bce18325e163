"""What is said of an explanation, level by level."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from interp.errors import InterpError
from interp.measures.interchange import Cases, Interchange
from interp.programs.explanations import Rule, forms
from interp.programs.explanations.bench import Setting
from interp.programs.explanations.explanation import MOST_EDGES, TABLE, Explanation, Level, how, summary
from interp.programs.explanations.findings import (
    AT_ITS_MEANS,
    Agreement,
    PartRole,
    ReadsLess,
    ReadsMore,
    StandIns,
    VariableRole,
)
from interp.programs.explanations.forms import LISTED
from interp.programs.explanations.quantities import Quantity
from interp.programs.language import Head, Linear, Program, Sums
from interp.programs.words import answer_words
from interp.report.sections.explanation import MORE, MOST_WORDS, card, evidence
from interp.support.words import n_words

READS = "attends to the first position and reads the token"
PARTS = (
    PartRole("head 0.0", "explained", READS, READS, without=0.25, kept=1.0),
    PartRole("head 0.1", "explained", READS, READS, without=0.5, kept=1.0),
    PartRole("head 0.2", "not used", without=1.0),
    PartRole("MLP 0", "kept", without=0.125),
)
USED = "3 of 4 parts are used: with head 0.2 at its mean, all of the answers stay on all 8 inputs. "
FOUND = Explanation("a", "b", 9, "in part", parts=PARTS, without=1.0, joint=0.995, tested_on="on all 8 inputs")


def test_parts_that_do_the_same_are_said_once() -> None:
    assert how(FOUND) == (
        f"{USED}With one of heads 0.0 and 0.1 and MLP 0 alone at its mean, 0.1250 to 0.5000 of the answers stay. "
        "Heads 0.0 and 0.1 attend to the first position and read the token. Not described: MLP 0; with the "
        "descriptions of the others in place, 0.9950 of the answers stay."
    )
    assert summary(FOUND).startswith("Explained in part. 3 of 4")


@pytest.mark.parametrize(
    ("level", "said"), [("in part", "a is explained in part, so it has no"), ("none", "no explanation was found for a")]
)
@pytest.mark.parametrize("name", ["source", "constants"])
def test_without_a_program_the_level_is_said(name: str, level: Level, said: str) -> None:
    with pytest.raises(InterpError, match=f"^{said}"):
        getattr(replace(FOUND, level=level), name)


def test_attention_that_is_given_otherwise_is_said() -> None:
    one, other = (replace(part, elsewhere=share) for part, share in zip(PARTS, (0.125, 0.03)))
    said = "Heads 0.0 and 0.1 attend to the first position and read the token (in the model, {} is given otherwise)."
    assert said.format("0.1250 and 0.0300 of their attention") in how(replace(FOUND, parts=(one, other)))
    assert "given otherwise" not in how(replace(FOUND, parts=(replace(one, elsewhere=0.05), other)))
    assert f"Head 0.0 {READS} (in the model, 0.1250 of its attention is given otherwise)." in how(
        replace(FOUND, parts=(one,))
    )
    many = [replace(one, part=f"head 0.{n}", brief=f"attends to position {n}", elsewhere=n / 16) for n in range(12)]
    hidden = "in the table of parts, where up to 0.6875 of a head's attention in the model is given otherwise."
    assert hidden in how(replace(FOUND, parts=tuple(many)))


def test_a_head_that_finds_nothing_attends_evenly() -> None:
    said = f"Head 0.0 {READS} (where there is none, evenly to all positions"
    one = replace(PARTS[0], finds_none=0.01)
    assert f"{said})." in how(replace(FOUND, parts=(one,)))
    both = f"{said}; in the model, 0.1250 of its attention is given otherwise)."
    assert both in how(replace(FOUND, parts=(replace(one, elsewhere=0.125),)))
    assert replace(FOUND, parts=(one,)).to_frame()["finds_none"].tolist() == [0.01]
    assert "there is none" not in how(replace(FOUND, parts=(replace(one, finds_none=0.0),)))


def test_from_where_a_head_attends_to_a_position() -> None:
    """From other positions it attends otherwise: "attends to the first position" alone is false of these."""
    said = f"Head 0.0 {READS} (from positions 0 and 1; from others it attends otherwise, which changes no answer)"
    one = replace(PARTS[0], only_from=(0, 1))
    found = replace(FOUND, parts=(one,))
    assert f"{said}." in how(found)
    assert f"{said} (where there is none" in how(replace(FOUND, parts=(replace(one, finds_none=0.01),)))
    assert found.to_frame()["only_from"].tolist() == [(0, 1)]
    assert Explanation.from_json(found.to_json()) == found
    other = replace(one, part="head 0.1", only_from=(2,))
    assert "Head 0.1 attends to the first position and reads the token (from position 2;" in how(
        replace(FOUND, parts=(one, other))
    )


def test_values_may_matter_of_parts_whose_mean_will_do() -> None:
    moved = "; with the values of head 0.2 at other positions, 0.7300."
    assert how(replace(FOUND, moved=0.73)).startswith(f"{USED.removesuffix('. ')}{moved} With one of")


def variable(name: str, changes: tuple[int, int], stays: tuple[int, int] = (100, 100)) -> VariableRole:
    """A variable that is right in some of so many cases in which the answer changes, and in which it stays."""
    score = Interchange(Cases(*changes[::-1], changes[1]), Cases(*stays[::-1], stays[1]), "of one length")
    return VariableRole(f"the value of {name}", (name,), READS, score)


def by_program(level: Level, *variables: VariableRole) -> Explanation:
    answer = Linear("answer", ("token",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))
    agreement = Agreement(2, 0, 1.0, 1.0, 1.0, 1.0, "on all 2 inputs")
    program = Program(("a", "b"), 1, True, (), answer)
    return replace(FOUND, level=level, program=program, agreement=agreement, variables=variables)


def test_interchanges_are_said() -> None:
    def said(*variables: VariableRole) -> str:
        return how(by_program("explained", *variables)).split("model's answers on all 2 inputs.")[1].strip()

    model = "from another input, in all places where it lives, the model answers as the program then does in"
    cases = "of the cases drawn in which the program's answer changes"
    assert said() == ""
    assert said(variable("head 0.0", (0, 0))) == ""
    stay = "in all of those in which it stays (100)."
    one = variable("head 0.0", (100, 100))
    assert said(one) == f"With the value of head 0.0 {model} all {cases} (100), and {stay}"
    both = (one, variable("head 0.1", (48, 50), (99, 100)))
    assert said(*both) == (
        f"With one of 2 variables {model} 0.9600 to 1 {cases} (50 or more), and in 0.9900 to 1 of those in which it "
        "stays (100 or more)."
    )
    known = replace(one.interchange, changes=Cases(100, 100, 100, True), stays=Cases(100, 100, 100, True))
    assert said(replace(one, interchange=known)) == said(one).replace(" drawn", "")


def test_where_the_program_has_no_answer_is_said() -> None:
    one, other = variable("head 0.0", (100, 100)), variable("head 0.1", (100, 100))
    tied = replace(one, interchange=replace(one.interchange, undecided=30, tried=200))
    said = "of the interchanges, the program has no answer (two have the same sum): these do not count."
    assert f"In 0.1500 {said}" in by_program("explained", tied).sentence
    assert by_program("explained", tied).to_frame("variables")["undecided"].tolist() == [0.15]
    other = replace(other, interchange=replace(other.interchange, tried=200))
    found = by_program("explained", other, tied)
    assert f"In up to 0.1500 {said}" in found.sentence
    assert Explanation.from_json(found.to_json()) == found
    few = replace(tied, interchange=replace(one.interchange, undecided=2, tried=200))
    assert "has no answer" not in by_program("explained", few).sentence


def test_what_is_far_from_the_model_is_said_of_the_program() -> None:
    far = tuple(replace(part, elsewhere=share) for part, share in zip(PARTS, (0.3, 0.0)))
    found = replace(FOUND, parts=far)
    assert "In the program, heads 0.0 and 0.1 attend to the first position" in how(found)
    assert "n the program, head" not in how(replace(found, level="imitated"))
    assert "n the program, head" not in how(replace(FOUND, parts=(replace(far[0], elsewhere=0.25), far[1])))


def test_a_program_with_other_variables_imitates() -> None:
    """What it does is said of the program, not of the model."""
    found = by_program("imitated", variable("head 0.0", (100, 100)), variable("head 0.1", (50, 100)))
    assert found.sentence.startswith(
        "Imitated: a program of its parts gives the model's answers, but the model does not compute with the value of "
        "head 0.1 as the program does. "
    )
    assert "The program: heads 0.0 and 0.1 attend to the first position" in found.sentence
    assert found.scores == (
        "answers 1 · interchange intervention accuracy 0.5000 at worst · 3 of 4 parts used · answers not proved"
    )
    unread = replace(found, variables=found.variables[:1], parts=(*PARTS[:2], replace(PARTS[3], status="not read")))
    assert unread.sentence.startswith(
        "Imitated: a program of its parts gives the model's answers, but it does without MLP 0, which the model uses. "
    )


def test_a_part_that_reads_more_is_said() -> None:
    known = by_program("imitated", variable("head 0.0", (100, 100)))
    one = replace(known, more=(ReadsMore("MLP 0", 0.5),))
    rest = "MLP 0 reads more than the program says: with the rest of what it reads taken from another input, 0.5000 of"
    assert f"but {rest} the model's answers stay." in one.sentence
    named = replace(known, more=(ReadsMore("MLP 0", 0.5, "token", 0.625),)).sentence
    assert "0.5000 of the model's answers stay (0.6250 with the token alone)" in named
    equal = replace(known, more=(ReadsMore("MLP 0", 27 / 28, "token", 27 / 28),)).sentence
    assert "0.9642 of the model's answers stay (0.9642 with the token alone)" in equal  # one number, rounded alike
    assert "with the token alone" not in replace(known, more=(ReadsMore("MLP 0", 0.5, "token", 0.875),)).sentence
    both = replace(known, more=(ReadsMore("MLP 0", 0.5), ReadsMore("the readout", 0.25)))
    assert "MLP 0 and the readout read more than the program says: with the rest of what they read" in both.sentence
    assert one.sentence.startswith("Imitated: ")
    assert Explanation.from_json(both.to_json()) == both
    assert (
        "MLP 0 reads more than its description says: with the rest of what it reads taken from another input, 0.5000 of"
        in replace(FOUND, more=one.more).sentence
    )


@pytest.mark.parametrize("briefly", ["looks up", "looks up " + "much and " * 40 + "more"])
def test_a_card_first_says_why_it_is_imitated(briefly: str) -> None:
    """The reasons of the sentence, before the steps, however long these are; the score line says what is proved."""
    one = by_program("imitated", variable("head 0.0", (50, 100)), variable("head 0.1", (20, 20)))
    sums = Sums("m", ("token",), (((1.0, 2.0), (-1.0, 0.3)),), (-0.3, 0.1), True)
    program = replace(one.program, steps=(sums,)) if one.program is not None else None
    parts = (*(replace(part, brief=briefly) for part in PARTS[:2]), PARTS[2], replace(PARTS[3], status="not read"))
    found = card(replace(one, program=program, more=(ReadsMore("MLP 1", 0.5),), parts=parts))
    assert found.startswith(
        "Imitated by a smaller network, with 2 weighted sums of which it is not known what they stand for: the model "
        "does not compute with the value of head 0.0 as the program does, and the program does without MLP 0, which "
        "the model uses, and MLP 1 reads more than the program says, and too few cases "
    )
    assert found.endswith(f"{MORE}\n\n{one.scores}")
    assert n_words(found) <= MOST_WORDS
    shown = by_program("explained", variable("head 0.0", (100, 100)))
    assert card(replace(shown, parts=parts)).startswith("Explained.\n\n1. Head")


def test_what_next_to_no_answer_follows_from_is_said() -> None:
    token = ReadsLess("MLP 0", "in", ("token",), 1.0)
    one = replace(by_program("explained", variable("head 0.0", (100, 100))), less=(token,))
    said = "In the program, MLP 0 reads the token, but no answer changes with this"
    assert f"{said} taken from elsewhere. By itself," in one.sentence
    both = replace(one, less=(token, ReadsLess("head 1.0", "key", ("position", "head 0.0", "head 0.1"), 0.9995)))
    assert (
        "MLP 0 reads the token and the keys of head 1.0 read the position and heads 0.0 and 0.1, but next to none of "
        "the model's answers depend on any one of these: with one of these taken from elsewhere, 0.9995 or more of the "
        "answers stay."
    ) in both.sentence
    assert Explanation.from_json(both.to_json()) == both
    of_two = replace(variable("head 0.0", (100, 100)), places=("head 0.0", "MLP 0"))
    assert f"{said}, and all that carries the same, taken from" in replace(one, variables=(of_two,)).sentence
    elsewhere = replace(of_two, places=("head 0.0", "head 0.1"))
    assert f"{said} taken from elsewhere" in replace(one, variables=(elsewhere,)).sentence
    assert "By their descriptions, MLP 0 reads the token, but" in replace(FOUND, less=(token,)).sentence


def test_many_edges_on_which_next_to_nothing_depends_are_counted() -> None:
    edges = [ReadsLess(f"head 1.{n}", "key", ("token", "head 0.0"), 1.0) for n in range(MOST_EDGES + 1)]
    found = replace(by_program("explained", variable("head 0.0", (100, 100))), less=tuple(edges))
    said = (
        f"In the program, parts read along {MOST_EDGES + 1} edges (in the table of edges), but no answer changes with"
    )
    assert f"{said} any one of them taken from elsewhere." in found.sentence
    assert len(found.to_frame("edges")) == MOST_EDGES + 1
    assert found.to_frame("edges").iloc[0].to_list() == ["head 1.0", "key", "token, head 0.0", 1.0]
    assert "the keys of head 1.0 read the token and head 0.0" in replace(found, less=tuple(edges[:MOST_EDGES])).sentence


def test_what_too_few_cases_tell_is_left_open() -> None:
    """All of 20 cases are right: that does not refute the variable, and the sentence does not."""
    few = variable("head 0.1", (20, 20))
    assert by_program("imitated", variable("head 0.0", (100, 100)), few).sentence.startswith(
        "Undecided: a program of its parts gives the model's answers, but too few cases tell whether the model "
        "computes with the value of head 0.1 as the program does. "
    )
    both = by_program("imitated", variable("head 0.0", (50, 100)), few)
    assert both.sentence.startswith(
        "Imitated: a program of its parts gives the model's answers, but the model does not compute with the value of "
        "head 0.0 as the program does, and too few cases tell whether the model computes with the value of head 0.1 "
    )
    assert both.to_frame("variables")["verdict"].tolist() == ["refuted", "too few cases"]


def test_variables_are_rows() -> None:
    found = by_program("imitated", variable("head 0.0", (100, 100)), variable("head 0.1", (50, 100), (30, 40)))
    table = found.to_frame("variables")
    assert table["variable"].tolist() == ["the value of head 0.0", "the value of head 0.1"]
    assert table[["changes", "changes_n", "stays", "stays_n", "verdict"]].values.tolist() == [
        [1.0, 100, 1.0, 100, "shown"], [0.5, 100, 0.75, 40, "refuted"],
    ]  # fmt: skip
    assert Explanation.from_json(found.to_json()) == found
    with pytest.raises(InterpError, match="unknown table of an explanation 'steps'; known: parts, variables, pairs"):
        found.to_frame("steps")


def test_no_part_is_described() -> None:
    said = how(replace(FOUND, parts=PARTS[3:] * 2))
    assert said.endswith("stay on all 8 inputs. No part has a description that takes its place.")


def test_parts_that_no_step_reads() -> None:
    answer = Linear("answer", ("token",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))
    program = Program(("a", "b"), 1, True, (), answer)
    agreement = Agreement(2, 0, 1.0, 1.0, 1.0, 1.0, "on all 2 inputs")
    parts = (*PARTS[:1], PartRole("head 0.2", "minor", without=1.0), replace(PARTS[3], status="not read"))
    assert how(replace(FOUND, level="explained", parts=parts, program=program, agreement=agreement)) == (
        f"{USED.replace('3 of 4 parts are', '1 of 3 parts is')}With head 0.0 alone at its mean, 0.2500 of the answers "
        "stay. The program does not read MLP 0, although with it alone at its mean, 0.1250 of the answers stay. "
        f"Head 0.0 {READS}. The answer follows from the token. By itself, this program gives all of the model's "
        "answers on all 2 inputs."
    )


def test_parts_of_which_only_the_means_matter() -> None:
    parts = tuple(replace(PARTS[n], does=AT_ITS_MEANS, brief=AT_ITS_MEANS, kept=0.998) for n in (0, 1))
    said = how(replace(FOUND, parts=parts))
    assert "With heads 0.0 and 0.1 at their means at each position, 0.9980 of the answers stay. Heads 0.0" in said
    assert "Heads 0.0 and 0.1 add their means at each position, and little else that matters." in said


def test_all_parts_are_used() -> None:
    parts = tuple(replace(PARTS[0], part=f"head 0.{n}") for n in range(10))
    said = [how(replace(FOUND, parts=parts[:n])).split(". Head")[0] for n in (1, 2, 3, 10)]
    stay = "alone at its mean, 0.2500 of the answers stay on all 8 inputs"
    assert said == [
        f"The only part is used. With it {stay}",
        f"Both parts are used. With one of heads 0.0 and 0.1 {stay}",
        f"All 3 parts are used. With one of heads 0.0, 0.1 and 0.2 {stay}",
        f"All 10 parts are used. With one of the used parts {stay}",
    ]


def test_what_stays_with_one_of_three_stand_ins_is_said() -> None:
    three = StandIns(("head 0.0", "head 0.1", "head 0.2"), 0.5, (0.51, 0.5, 0.62))
    parts = tuple(replace(PARTS[0], part=part, without=1.0) for part in three.parts)
    assert (
        "Heads 0.0, 0.1 and 0.2 stand in for each other: with one of them at its mean, all of the answers stay on all "
        "8 inputs; with all but one, 0.5000 to 0.6200 of the answers stay; with all, 0.5000."
    ) in how(replace(FOUND, parts=parts, stand_ins=(three,)))


def test_parts_that_stand_in_for_each_other_are_said_to() -> None:
    """Each alone may be at its mean, but not both; the program may read one of them, both or none."""
    spare = (replace(PARTS[0], without=0.9999), replace(PARTS[1], without=0.9989))
    stand_ins = (StandIns(("head 0.0", "head 0.1"), 0.5),)
    each = (
        "Heads 0.0 and 0.1 stand in for each other: with one of them at its mean, 0.9989 to 0.9999 of the answers stay"
    )
    firm = "With MLP 0 alone at its mean, 0.1250 of the answers stay"

    def said(*parts: PartRole) -> str:
        return (
            how(replace(FOUND, parts=parts, stand_ins=stand_ins)).split(" Head 0.0")[0].split(" Heads 0.0 and 0.1 a")[0]
        )

    assert said(*spare, PARTS[3]) == f"All 3 parts are used. {firm} on all 8 inputs. {each}; with both, 0.5000."
    assert said(*spare) == f"Both parts are used. {each} on all 8 inputs; with both, 0.5000."
    assert said(spare[0], replace(spare[1], status="stands in"), PARTS[3]) == (
        f"2 of 3 parts are used: with head 0.1 at its mean, all of the answers stay on all 8 inputs. {firm}. {each}; "
        "with both, 0.5000."
    )


def test_a_part_whose_mean_alone_changes_nothing_is_used() -> None:
    """Its values do: see `relevance.used`."""
    assert how(replace(FOUND, parts=(replace(PARTS[0], without=1.0, moved=0.75), *PARTS[1:]))).startswith(
        f"{USED}With one of head 0.1 and MLP 0 alone at its mean, 0.1250 to 0.5000 of the answers stay. "
        "With head 0.0 alone at its mean, all of the answers stay; with its values at other positions, 0.7500. Heads"
    )


def test_a_program_that_gives_too_few_answers_is_said_to() -> None:
    said = how(replace(FOUND, parts=PARTS[:2], listing="gives 0.9700 of the model's answers on all 8 inputs"))
    assert said.endswith(
        "With the descriptions in place, 0.9950 of the answers stay. A program of these parts gives 0.9700 of the "
        "model's answers on all 8 inputs, so it is no explanation."
    )


def test_a_page_has_a_line_for_each_step() -> None:
    """The same sentences as elsewhere, what is done first."""
    found = replace(FOUND, parts=(PARTS[0], replace(PARTS[1], brief="reads the position"), *PARTS[2:]))
    page = summary(found, apart=True)
    assert page.split("\n\n")[:2] == [
        "Explained in part.", f"1. Head 0.0 {READS}.\n2. Head 0.1 reads the position.",
    ]  # fmt: skip
    assert sorted(page.replace("1. ", "").replace("2. ", "").split()) == sorted(summary(found).split())


def test_nothing_is_said_of_parts_that_do_nothing() -> None:
    idle = replace(FOUND, parts=tuple(replace(one, status="not used", does="", brief="") for one in PARTS))
    assert how(idle) == "No head or MLP is used: with all of them at their means, all of the answers stay."


def test_without_anything_the_reason_is_said() -> None:
    none = Explanation("a", "b", 9, reason="the model answers 0")
    assert summary(none) == "No explanation found: the model answers 0."
    assert how(none) == ""


def test_only_a_program_is_compared_with_the_parameters() -> None:
    setting = Setting(("a", "b"), (), True, ("a", "b"))
    found = replace(FOUND, rule=Rule(setting, "same", (Quantity(setting, "place", (0,)),)))
    size = "a rule for the answers with 1 constant, which is not read from the model's parts"
    assert found.size == size
    assert f"\n\nA{size[1:]}.\n\n" in str(found)
    assert evidence(found).startswith(f"There is {size}. Parts of the model: ")
    assert Explanation("a", "b", 9, reason="the model answers 0").size == "no program and no rule"
    head = Head("head 0.0", "", "position", ((0.0, -1.0, -2.0),), "token")
    answer = Linear("answer", ("head 0.0",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("x", "y"))
    program = Program(("a", "b"), 3, True, (head,), answer)
    assert replace(FOUND, program=program).size == f"{program.constants} constants in place of 9 parameters"


def test_agreement() -> None:
    assert (
        str(Agreement(64, 0, 1.0, 1.0, 1.0, 1.0, "on all 64 inputs")) == "all of the model's answers on all 64 inputs"
    )
    sampled = Agreement(100_000, 1, 0.99999, 0.9, 0.9999, 0.999999, "on a sample")
    assert str(sampled) == "0.99999 of the model's answers on a sample (95% interval 0.9999 to 0.999999)"


def test_a_long_table_is_said_to_be_no_algorithm() -> None:
    setting = Setting(tuple("abcdefghijklmnop"), (), True, ("x", "y"))
    first = (Quantity(setting, "place", (0,)),)
    agreement = Agreement(16, 0, 1.0, 1.0, 1.0, 1.0, "on all 16 inputs")
    kept = tuple(PartRole(f"head 0.{head}", "kept", without=0.3 + head / 10) for head in range(2))

    def said(n: int) -> str:
        rule = Rule(setting, "table", first, {"entries": [[at, 1] for at in range(n)], "default": 0})
        return summary(
            Explanation("a", "b", 9, "answers only", parts=kept, rule=rule, agreement=agreement, tested_on="x")
        )

    used = (
        "Both parts are used. With one of heads 0.0 and 0.1 alone at its mean, 0.3000 to 0.4000 of the answers stay x. "
    )
    looked_up = "The answer is looked up by the first token in a table of 13 entries"
    assert said(LISTED + 1).startswith(f"A{TABLE[1:]}. {looked_up}")
    assert used in said(LISTED + 1)
    assert said(LISTED).startswith("The answer is looked up")


@pytest.mark.parametrize(("n", "said"), [(1, "the value of head 0.0."), (2, "the values of heads 0.0 and 0.1."),
                                         (3, "the values of heads 0.0, 0.1 and 0.2.")])  # fmt: skip
def test_values_of_several_parts_are_named_together(n: int, said: str) -> None:
    steps = tuple(Head(f"head 0.{at}", "", "position", ((0.0, -1.0, -2.0),), "token") for at in range(n))
    eye = ((1.0, 0.0), (0.0, 1.0))
    answer = Linear("answer", tuple(step.name for step in steps), (eye,) * n, (0.0, 0.1), ("x", "y"))
    assert answer_words(Program(("a", "b"), 3, True, steps, answer)).endswith(said)


def test_values_are_listed_up_to_three() -> None:
    """A fourth makes it a range of numbers, or a count of values."""
    number: Any = SimpleNamespace(said=str, tokens=False)
    assert forms._among(number, [2, 3, 4]) == "2, 3 or 4"
    assert forms._among(number, [2, 3, 4, 5]) == "from 2 to 5"
    assert forms._among(number, [2, 3, 4, 6]).startswith("one of 4 values (2, 3")


def test_an_interchange_score_is_rounded_as_everywhere() -> None:
    """Its only variable was right in "0.6666" of the cases by the scores, and in "0.6667" by the sentence."""
    found = by_program("imitated", variable("head 0.0", (200, 300)))
    assert "interchange intervention accuracy 0.6667 ·" in found.scores
    assert str(found.variables[0].interchange.changes).startswith("0.6667 (")


def test_what_a_program_does_without_is_no_step_of_it() -> None:
    found = by_program("imitated", variable("head 0.0", (50, 100)))
    role = next(role for role in found.parts if role.status == "explained")
    copy = replace(role, part="head 0.3", does="attends to position 7", brief="", like=role.part)
    assert "position 7" not in replace(found, parts=(role, copy)).sentence
    assert "position 7" in replace(found, parts=(role, replace(copy, like=""))).sentence
