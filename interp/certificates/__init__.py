"""Certificates: exact checks of a model on its whole input domain. Files that register a method are imported here."""

from interp.certificates import count_boxes as count_boxes
from interp.certificates import enumeration as enumeration
from interp.certificates import evidence_parts as evidence_parts
from interp.certificates import multisets as multisets
from interp.certificates import places as places
from interp.certificates import products as products
from interp.certificates.certificate import Certificate as Certificate
from interp.certificates.certificate import register_method as register_method
from interp.certificates.certify import Plan as Plan
from interp.certificates.certify import certify_model as certify_model
from interp.certificates.certify import method_for as method_for
from interp.certificates.certify import plan as plan
from interp.certificates.enumeration import certify_inputs as certify_inputs
from interp.tasks.registry import load_plug_ins as _load_plug_ins

_load_plug_ins("certificates")
