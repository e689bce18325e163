"""The two exact models of PALINDROME under one name: binary (the paper's) and mirror (errata, section B)."""

from interp.constructions import Construct, register_construction
from interp.errors import InterpError
from interp.families.languages.constructions.palindrome_binary import binary
from interp.families.languages.constructions.palindrome_mirror import mirror
from interp.families.languages.constructions.parts import norm_of


@register_construction("languages/palindrome", variants=("binary", "mirror"))
def palindrome(
    variant: str = "binary",
    c: float = 0.0,
    tolerance: float = 0.0,
    layer_norm: bool = False,
    eps: float = 0.0,
    output_scale: float = 1.0,
    beyond: str = "refuse",
) -> Construct:
    """PALINDROME: the two halves compared as binary numbers, or position by position through the mirror.

    variant: "binary" (d = 12; up to length 42 in float32, 95 in float64) or "mirror" (d = 10; up to 4,000 and 10,000).
    c: binary only, the difference between scores of neighboring positions; 0 means ln 2, the only value with a proof.
    tolerance: 0 means that the model computes half the lower bound of |s| for other strings of the same length; a
    positive number gives the paper's indicator of |s| <= tolerance. layer_norm, eps: mirror only. output_scale: the
    readout's factor on the logit (on s with a tolerance). beyond: "refuse" or "warn" if a string is too long for the
    number format. Raises InterpError for invalid values.
    """
    if variant == "binary":
        if layer_norm or eps:
            raise InterpError("layer_norm applies to variant='mirror': a norm would bend the binary code i of 'binary'")
        return binary(c, tolerance, output_scale, beyond)
    if c:
        raise InterpError(f"c = {c!r} applies to variant='binary' only; 'mirror' takes its strength from the proof")
    if tolerance and layer_norm:
        raise InterpError("tolerance and layer_norm exclude each other: a norm scales s away from 0 whatever it is")
    return mirror(tolerance, layer_norm, norm_of(layer_norm, eps), output_scale, beyond)
