"""Short notes on words that a first-time reader may not know; a page shows them where the word stands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

NOTES: dict[str, str] = {
    "s-acc": "Separation accuracy: the share of inputs that the best straight line (or plane) through a head's outputs "
    "sorts rightly into the answers. Fitted on the training set, measured on the test set.",
    "l-acc": "Learned accuracy: the share of inputs that the model's own readout answers rightly when all other heads "
    "are silenced.",
    "ROC AUC": "The chance that a score is larger for a random input of one answer than for a random input of the "
    "other: 1 tells them apart, 0.5 is a coin.",
    "pseudo-ensemble": "Heads that each could answer alone, but are read out together, as if they voted.",
    "w01": "A head's attention to one '0' over its attention to one '1' (in general: the first counted token over the "
    "second), from where the answer is read.",
    "w02": "A head's attention to one '0' over its attention to one '2' (in general: the first counted token over the "
    "third), from where the answer is read.",
    "value vectors": "What a head would put out if it attended to one token alone.",
    "separator": "The straight line (or plane) that best divides the outputs of one answer from those of the others.",
    "mean-ablated": "Replaced by its mean over training inputs, so that it says the same whatever the input: at each "
    "position its own mean where all inputs have one length; else one mean where answers are read and one for all "
    "other positions, which also takes away what a part says of its position.",
    "residual stream": "The vector at each position that all parts of a transformer read from and add to.",
    "direct logit attribution": "The output is a sum of what each part writes; each part's share of it.",
    "induction": "Attention to what followed an earlier occurrence of the same token.",
    "nats": "A unit of information: 1 nat is 1.44 bits.",
    "Patching": "One site of a run is given the value that it has in the run of another input; what changes tells what "
    "the site carries.",
    "linear probe": "A linear map fitted to read a variable off a vector, and tested on other inputs.",
    "relation-based": "The count shows in how much attention equal tokens draw, the same for every token.",
    "inventory-based": "The mixture of all tokens says how often each occurs; neurons read one token's share each.",
    "divergence": "Kullback-Leibler divergence: by how much the model's distribution misses the table's, averaged over "
    "contexts; 0 where they are equal.",
    "false accepts": "Strings outside of the language that the model accepts.",
    "false rejects": "Strings of the language that the model rejects.",
    "cross-entropy": "The mean of minus the logarithm of the probability that the model gives to the right answer.",
    "QK": "What makes a head look: the score of a query token for a key token.",
    "OV": "What a head adds when it looks at a token.",
    "interchange": "One site is given its value on another input; does the answer change as if the variable had?",
}  # fmt: skip
"""Word and note. Words are found as they are written here, or with a capital at the start of a sentence."""

_IDS = {word: f"note-{re.sub('[^a-z0-9]+', '-', word.lower())}" for word in NOTES}
_WORDS = re.compile(
    r"(\(?)(?<![\w'-])(" + "|".join(map(re.escape, sorted(NOTES, key=len, reverse=True))) + r")(?![\w'-])([),.:;]*)"
)


def annotated(text: str, told: set[str]) -> Markup:
    """The text escaped, with a button for the first occurrence of each word that is not in `told`, which grows."""
    from markupsafe import Markup, escape

    def button(match: re.Match[str]) -> str:
        before, word, after = match.groups()
        if word in told:
            return match[0]
        told.add(word)
        said = f'<button type="button" class="term" popovertarget="{_IDS[word]}">{word}</button>'
        # A line may break on either side of a button, so what belongs to the word would be left alone.
        return f'<span class="whole">{before}{said}{after}</span>' if before or after else said

    return Markup(_WORDS.sub(button, str(escape(text))))


def notes(told: set[str]) -> list[tuple[str, str, str]]:
    """(id, word, note) of the words that were told, in alphabetical order."""
    return [(_IDS[word], word, NOTES[word]) for word in sorted(told, key=str.lower)]
