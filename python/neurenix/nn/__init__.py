"""Layers, losses and containers with PyTorch's names. State dicts of PyTorch modules can be loaded.

>>> import neurenix as nx
>>> from neurenix import nn
>>> model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
>>> model(nx.zeros(4, 2)).shape
torch.Size([4, 1])
"""

# Each module's `__all__` names what it exports, so that a layer is added in one file.
from . import (
    activation,
    cache,
    container,
    conv,
    decoder,
    functional,
    init,
    language,
    lazy,
    linear,
    loss,
    module,
    normalization,
    padding,
    parallel,
    parameter,
    pooling,
    rarer,
    rnn,
    sampling,
    sparse,
    synchronized,
    transformer,
    utils,
)
from .activation import *
from .cache import *
from .container import *
from .conv import *
from .decoder import *
from .language import *
from .lazy import *
from .linear import *
from .loss import *
from .module import *
from .normalization import *
from .padding import *
from .parallel import DataParallel
from .parameter import *
from .pooling import *
from .rarer import *
from .rnn import *
from .sampling import *
from .sparse import *
from .synchronized import *
from .transformer import *

__all__ = ["DataParallel", "functional", "init", "parallel", "utils"]
__all__ += activation.__all__
__all__ += cache.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += decoder.__all__
__all__ += language.__all__
__all__ += lazy.__all__
__all__ += linear.__all__
__all__ += loss.__all__
__all__ += module.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += parameter.__all__
__all__ += pooling.__all__
__all__ += rarer.__all__
__all__ += rnn.__all__
__all__ += sampling.__all__
__all__ += sparse.__all__
__all__ += synchronized.__all__
__all__ += transformer.__all__
