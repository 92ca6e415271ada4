"""Names that scripts import from here."""

from .gradients.local_sgd import LocalSGD as LocalSGD
