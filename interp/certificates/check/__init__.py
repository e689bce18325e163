"""Check the evidence of a certificate with the standard library alone: no torch, no numpy, no other part of interp.

    python -I -S check proof.json.gz [--sha256 HEX] [--checkpoint model.safetensors] [--processes N]

This folder is self-contained: copy it anywhere. If the evidence holds, the exit code is 0 and the last line is the
complete claim. It begins with "holds:" for a task that this checker knows, whose labels and domain it derives itself,
or with "agrees with" for labels or a rule that came with the file. If a step fails, the exit code is 1 and the message
names the first such step. The checker trusts nothing in the file: it derives every inequality again from the weights,
in integer arithmetic; it counts the parts of a domain, which must cover all of it; and it writes the claim itself.

A number is (mid, rad, err), in units of 2^-192. The real number is within rad of mid, rounded outward; the model's
floating-point number is within err of the real one. A claim is about real arithmetic. If it names a number format, the
answers there are the same, because the margin exceeds the accumulated err. It assumes of a format with unit roundoff u
and smallest normal number eta: +, -, *, / and sqrt have relative error u, or absolute error eta; a sum of n products,
in any order, fused or not, has an error of at most n u / (1 - n u) times the sum of their sizes; exp is accurate to 32
units in the last place; softmax rescales at most once per 128 keys; sines and logarithms of position codes are computed
in float64, with an error of at most 256 u per component. Products of three factors may be evaluated in either order,
and tokens that are later in a row, or masked, may enter with weight 0. Therefore a claim that names a format is refused
if an intermediate number could come near the format's limits. Every input is run as its own row, without padding.

To trust a claim, read the files in the left column and, in the right column, the file for its kind:

reading      reads a file that may be hostile            inputs     a table of inputs, each run; strings of 0 and 1
enclosures   numbers with bounds, matrices, LayerNorm    counts     boxes of three counts; the largest of K numbers
weights      spec and tensors as in the file             sequences  how often each token occurs, at every position
layer        one block: attention and MLP                places     rows that an automaton reads
decoder      RMSNorm, rotary positions, gated MLPs       forms      sets of vectors as linear bounds (for places)
model        the model that spec and weights define
tasks        the known tasks: inputs, labels, read positions
verdict      the claim, its sentence, the command line
"""

from .enclosures import FORMATS as FORMATS
from .enclosures import ONE as ONE
from .enclosures import REALS as REALS
from .enclosures import Format as Format
from .enclosures import fixed as fixed
from .model import Model as Model
from .reading import Fault as Fault
from .reading import read as read
from .verdict import SCHEMA as SCHEMA
from .verdict import check as check
from .verdict import main as main
from .weights import compare_checkpoint as compare_checkpoint
from .weights import weights_sha256 as weights_sha256
