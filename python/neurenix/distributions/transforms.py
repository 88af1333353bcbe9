"""Transforms with known log determinants of their Jacobians, with the names of ``torch.distributions.transforms``.

>>> import neurenix as nx
>>> from neurenix.distributions import transforms
>>> t = transforms.ExpTransform()
>>> t.log_abs_det_jacobian(nx.tensor(0.5), t(nx.tensor(0.5))).item()
0.5
"""

from ._elementwise_transforms import (
    AbsTransform as AbsTransform,
    AffineTransform as AffineTransform,
    CumulativeDistributionTransform as CumulativeDistributionTransform,
    ExpTransform as ExpTransform,
    PowerTransform as PowerTransform,
    SigmoidTransform as SigmoidTransform,
    SoftplusTransform as SoftplusTransform,
    TanhTransform as TanhTransform,
)
from ._transform import (
    ComposeTransform as ComposeTransform,
    IndependentTransform as IndependentTransform,
    ReshapeTransform as ReshapeTransform,
    Transform as Transform,
    identity_transform as identity_transform,
)
from ._vector_transforms import (
    CatTransform as CatTransform,
    CorrCholeskyTransform as CorrCholeskyTransform,
    LowerCholeskyTransform as LowerCholeskyTransform,
    PositiveDefiniteTransform as PositiveDefiniteTransform,
    SoftmaxTransform as SoftmaxTransform,
    StackTransform as StackTransform,
    StickBreakingTransform as StickBreakingTransform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]
