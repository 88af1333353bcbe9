"""Layers, losses and containers with PyTorch's names. State dicts of PyTorch modules can be loaded.

>>> import neurenix as nx
>>> from neurenix import nn
>>> model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
>>> model(nx.zeros(4, 2)).shape
(4, 1)
"""

# Each module's `__all__` names what it exports, so that a layer is added in one file.
from . import functional as functional, init as init, utils as utils
from .activation import *
from .cache import *
from .container import *
from .conv import *
from .decoder import *
from .language import *
from .linear import *
from .loss import *
from .module import *
from .normalization import *
from .padding import *
from .parameter import *
from .pooling import *
from .rnn import *
from .sampling import *
from .transformer import *
