"""What a model computes, as a program or an automaton, and on which share of its inputs."""

from interp.explanations.engine import explain_subject
from interp.explanations.explanation import Explanation
from interp.explanations.findings import Agreement, PartRole
from interp.explanations.rule import Rule

__all__ = ["Agreement", "Explanation", "PartRole", "Rule", "explain_subject"]
