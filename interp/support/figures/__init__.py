"""All figures: functions from a tidy table to a plotly figure with named axes. Captions belong to the report."""

from interp.support.figures.answers import error_by_difference as error_by_difference
from interp.support.figures.answers import error_frontier as error_frontier
from interp.support.figures.answers import logit_distributions as logit_distributions
from interp.support.figures.curves import bars as bars
from interp.support.figures.curves import history as history
from interp.support.figures.curves import lines as lines
from interp.support.figures.curves import scatter as scatter
from interp.support.figures.heads import attention_ratios as attention_ratios
from interp.support.figures.heads import circuit as circuit
from interp.support.figures.heads import heads_heatmap as heads_heatmap
from interp.support.figures.heads import heatmap as heatmap
from interp.support.figures.heads import intervention_curve as intervention_curve
from interp.support.figures.heads import metrics_by_size as metrics_by_size
