"""What a model computes, as a program or an automaton, and on which share of its inputs."""

from interp.programs.explanations.engine import explain_subject
from interp.programs.explanations.explanation import Explanation
from interp.programs.explanations.findings import Agreement, PartRole
from interp.programs.explanations.rule import Rule

__all__ = ["Agreement", "Explanation", "PartRole", "Rule", "explain_subject"]
