"""Layers, losses and containers under PyTorch's names: states of PyTorch's modules load.

>>> import neurenix as nx
>>> from neurenix import nn
>>> model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
>>> model(nx.zeros(4, 2)).shape
(4, 1)
"""

from . import functional, init, utils
from .activation import *  # noqa: F403
from .container import ModuleDict, ModuleList, ParameterList, Sequential
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import (
    Bilinear,
    CosineSimilarity,
    Embedding,
    Flatten,
    Identity,
    Linear,
    PixelShuffle,
    Unflatten,
    Upsample,
)
from .loss import *  # noqa: F403
from .module import Module
from .normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
)
from .parameter import Parameter
from .pooling import *  # noqa: F403
from .rnn import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from .transformer import MultiheadAttention, TransformerEncoder, TransformerEncoderLayer
