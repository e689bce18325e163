"""All figures: functions from a tidy table to a plotly figure with named axes. Captions belong to the report."""

from interp.report.figures_answers import error_by_difference as error_by_difference
from interp.report.figures_answers import error_frontier as error_frontier
from interp.report.figures_answers import logit_distributions as logit_distributions
from interp.report.figures_curves import bars as bars
from interp.report.figures_curves import history as history
from interp.report.figures_curves import lines as lines
from interp.report.figures_curves import scatter as scatter
from interp.report.figures_heads import attention_ratios as attention_ratios
from interp.report.figures_heads import circuit as circuit
from interp.report.figures_heads import heads_heatmap as heads_heatmap
from interp.report.figures_heads import heatmap as heatmap
from interp.report.figures_heads import intervention_curve as intervention_curve
from interp.report.figures_heads import metrics_by_size as metrics_by_size
