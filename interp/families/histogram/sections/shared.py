"""Results that several sections on counting share; each is computed once, with study.once."""

import pandas as pd

from interp.families.histogram.measures.counting import CountingModel, attention_by_relation
from interp.sections.base import Study, unsupported


def counter(study: Study) -> CountingModel:
    """Return the model as a CountingModel, for all sections on counting."""
    return CountingModel.of(study.subject)


def needs_counter(study: Study) -> str | None:
    """Return the reason why the model is not a CountingModel, or None."""
    return unsupported(study.once, counter)


def by_relation(study: Study) -> pd.DataFrame:
    """Return the attention by relation and count."""
    return attention_by_relation(study.once(counter))
