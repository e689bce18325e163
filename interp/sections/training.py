"""Loss and accuracy over training, if the history is known."""

from interp.measures.curve import no_curve, training_curve
from interp.report import Report
from interp.report import figures as draw
from interp.sections.base import Study, section
from interp.words import counted, share


@section("training", title="Training", order=940, block="method", needs=lambda study: no_curve(study.subject))
def make(study: Study, report: Report) -> None:
    """Show the curve of the training run or from the checkpoint."""
    curve = training_curve(study.subject)
    last = curve.iloc[-1]
    report.heading(
        "Training",
        f"{counted(int(last['epoch']), 'epoch')}; at the end the training loss is {last['loss']:.4g} nats and the "
        f"validation accuracy is {share(last['accuracy'])}.",
    )
    report.add_figure("training", draw.history(curve), "Training loss and validation accuracy.")
    report.add_fact("final_loss", float(last["loss"]))
