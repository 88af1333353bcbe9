"""A graph convolutional network on a dense adjacency matrix."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter

from common import STEPS, numbers, same_weights


class GraphConvolution(Module):
    def __init__(self, in_features, out_features, bias=True):
        super(GraphConvolution, self).__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        output = torch.mm(adj, torch.mm(input, self.weight))
        return output + self.bias if self.bias is not None else output

    def __repr__(self):
        return self.__class__.__name__ + " (" + str(self.in_features) + " -> " + str(self.out_features) + ")"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass):
        super(GCN, self).__init__()
        self.gc1, self.gc2 = GraphConvolution(nfeat, nhid), GraphConvolution(nhid, nclass)

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, 0.0, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    return preds.eq(labels).double().sum() / len(labels)


def losses():
    features, labels = numbers(30, 12), torch.LongTensor(numbers(30, low=4).tolist())
    adj = (numbers(30, 30, seed=1) > 1).float()
    adj = adj + torch.eye(30)
    adj = adj / adj.sum(1, keepdim=True)
    idx_train = torch.LongTensor(range(20))
    model = same_weights(GCN(12, 16, labels.max().item() + 1))
    assert "GraphConvolution (12 -> 16)" in repr(model)
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(STEPS):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        acc = accuracy(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        yield loss_train.item() + acc.item()
