"""Short notes on terms that a first-time reader may not know; a page shows them next to the term."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

NOTES: dict[str, str] = {
    "s-acc": "Separation accuracy: the share of inputs that a straight line (or plane) through a head's outputs "
    "classifies correctly. The best line is fitted on the training set; the accuracy is measured on the test set.",
    "l-acc": "Learned accuracy: the share of inputs that the model's own readout answers correctly when all other "
    "heads, and the token's own embedding (the skip connection), are silenced.",
    "ROC AUC": "The chance that a score is larger for a random input with one answer than for a random input with "
    "the other: 1 means that the score separates the two answers perfectly, 0.5 that it is no better than a coin "
    "toss.",
    "pseudo-ensemble": "Heads that could each answer alone, but are read out together, as if they voted.",
    "w01": "A head's attention to one '0' divided by its attention to one '1', at the position where the answer is "
    "read. (In general: attention to the first counted token, divided by attention to the second.)",
    "w02": "A head's attention to one '0' divided by its attention to one '2', at the position where the answer is "
    "read. (In general: attention to the first counted token, divided by attention to the third.)",
    "value vectors": "For each token, the output that a head would have if it attended to this token alone.",
    "separator": "The straight line (or plane) that best divides the outputs of one answer from those of the others.",
    "mean-ablated": "Replaced by its mean over training inputs, so that it carries no information about the input. If "
    "all inputs have the same length, each position has its own mean. Otherwise there is one mean for positions where "
    "answers are read and one for all others, so that information about the position is lost, too.",
    "residual stream": "The vector at each position that all parts of a transformer read from and add to.",
    "direct logit attribution": "A logit is the sum of one contribution from each part of the model; this method "
    "reports these contributions.",
    "induction": "Attention to the token that followed an earlier occurrence of the current token.",
    "nats": "A unit of information: 1 nat is 1.44 bits.",
    "Patching": "Run the model on one input, but give one site the value that it has on another input. If the output "
    "changes, the site carries what differs between the two inputs.",
    "linear probe": "A linear map fitted to read a variable off a vector, and tested on other inputs.",
    "relation-based": "A way to count: each position attends more to tokens equal to its own, whichever token that "
    "is, and the count is read from the total attention that they receive.",
    "inventory-based": "A way to count: attention mixes all tokens, and each neuron reads the share of one token "
    "in the mixture, which gives its count.",
    "divergence": "Kullback-Leibler divergence of the model's distribution from the true one (the task's table), "
    "averaged over contexts; 0 if they are equal.",
    "false accepts": "Strings that the model accepts although they are not in the language.",
    "false rejects": "Strings that the model rejects although they are in the language.",
    "cross-entropy": "The mean of -log p, where p is the probability that the model gives to the right answer.",
    "QK": "Decides where a head attends: the score of a query token for a key token.",
    "OV": "Decides what a head writes when it attends to a token.",
    "interchange": "Give one site its value on another input. If the site holds a variable, the answer changes as if "
    "that variable had changed.",
    "Explained": "The program gives the model's answers, and each of its variables is the model's own: with its value "
    "from another input, in both, they answer alike.",
    "Imitated": "The program gives the model's answers, but some of its variables are not the model's own, or were not "
    "shown to be, or a part reads more than the program says.",
    "In part": "Some parts have a description that can take their place in the model, but no program of them gives the "
    "model's answers.",
}  # fmt: skip
"""Words and notes. A word is found as written here, or with a capital letter at the start of a sentence."""

_IDS = {word: f"note-{re.sub('[^a-z0-9]+', '-', word.lower())}" for word in NOTES}
_WORDS = re.compile(
    r"(\(?)(?<![\w'-])(" + "|".join(map(re.escape, sorted(NOTES, key=len, reverse=True))) + r")(?![\w'-])([),.:;]*)"
)


def annotated(text: str, told: set[str]) -> Markup:
    """Escape the text, and make a button of the first occurrence of each word that is not in `told`; add it there."""
    from markupsafe import Markup, escape

    def button(match: re.Match[str]) -> str:
        before, word, after = match.groups()
        if word in told:
            return match[0]
        told.add(word)
        term = f'<button type="button" class="term" popovertarget="{_IDS[word]}">{word}</button>'
        # Without the span, a line could break between the button and its punctuation.
        return f'<span class="whole">{before}{term}{after}</span>' if before or after else term

    return Markup(_WORDS.sub(button, str(escape(text))))


def notes(told: set[str]) -> list[tuple[str, str, str]]:
    """Return (id, word, note) for each word in `told`, in alphabetical order."""
    return [(_IDS[word], word, NOTES[word]) for word in sorted(told, key=str.lower)]
