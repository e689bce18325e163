"""Check the evidence of a certificate on a bare Python: no torch, no numpy, nothing of the package that wrote it.

    python -I -S check proof.json.gz [--sha256 HEX] [--checkpoint model.safetensors] [--processes N]

This folder is all that it needs: copy it anywhere. Exit code 0, and last of all a line that stands for itself:
"holds:" with a claim about a task that this checker knows, labels and domain derived here, or "agrees with" labels or a
rule that came with the file. Exit code 1 and the first thing that does not hold.
Nothing that the file says is believed: every inequality is derived again from the weights with whole numbers, parts of
a domain are counted and must be all of it, and the sentence of the claim is written again here.

A number is (mid, rad, err), in units of 2^-192: the real one is in mid +- rad, rounded outward, and the one that a
number format has in its place is within err of it. The claim is about the reals; where it names a format, the answers
there are the same, because the margin exceeds what err adds up to. The premise about a format, with u its unit roundoff
and eta its smallest normal number: +, -, *, / and sqrt are right to a factor 1 + u, or to eta; a sum of n products, in
any order, fused or not, is within n u / (1 - n u) of the sum of their sizes; exp is right to 32 units in the last
place; a softmax rescales at most once for each 128 keys; a position code of sines and a logarithm, computed in float64,
is right to 256 u of each component. Products of three may be formed in either order, and tokens
that stand later in a row, or nowhere, may take part with weight 0: a claim that names a format is therefore refused
where a number on the way might come near the format's limits. Every input is run as a row of its own, without padding.

To trust one claim, read the files on the left and the one of its kind:

reading      a file that may be hostile                inputs     a table of them, all run
enclosures   numbers, matrices, layer norm             strings    of 0 and 1
weights      spec and tensors, as the file has them    counts     boxes of three counts
attention    softmax and the average it weighs         maxima     the largest of K numbers
positions    codes that are formulas                   sequences  every position says how often its token occurs
layer        one block                                 places     rows that an automaton reads, place by place
decoder      today's norms, rotations, neurons         forms      sets of vectors as linear bounds (for places)
model        what spec and weights compute
tasks        tasks that are known: inputs, labels, where they are read
verdict      the claim, its sentence, the command line
checkpoint   are the weights those of a file?
"""

from .checkpoint import compare_checkpoint as compare_checkpoint
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
from .weights import weights_sha256 as weights_sha256
