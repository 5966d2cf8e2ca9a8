"""Recommendation models: DLRM, Wide & Deep, DeepFM, NeuMF, SASRec."""

import torch
from torch import Tensor, nn

from costmodel.training.corpora.nets.layers import encoder_layer, mlp

__all__ = ["DeepFM", "Dlrm", "Ncf", "SasRec", "WideAndDeep"]


class _Fields(nn.Module):
    """Embeddings of categorical fields, each field with its own table."""

    def __init__(self, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(fields))

    def forward(self, ids: Tensor) -> Tensor:
        """Maps the category of each field, [batch, fields], to embeddings, [batch, fields, width]."""
        return torch.stack([table(ids[:, i]) for i, table in enumerate(self.tables)], 1)


class Dlrm(nn.Module):
    """DLRM (Naumov et al. 2019): a click model of dense features and inner products of all pairs of embeddings."""

    def __init__(self, dense: int, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.fields = _Fields(fields, rows, width)
        self.bottom = mlp(dense, 512, 256, width)
        pairs = torch.tril_indices(fields + 1, fields + 1, -1)
        self.register_buffer("pairs", pairs[0] * (fields + 1) + pairs[1], persistent=False)
        self.top = mlp(width + pairs.shape[1], 1024, 512, 256, 1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Maps dense features, [batch, dense], and categories, [batch, fields], to click probabilities, [batch, 1]."""
        low = self.bottom(dense).relu()
        rows = torch.cat([low.unsqueeze(1), self.fields(ids)], 1)
        products = (rows @ rows.transpose(1, 2)).flatten(1)[:, self.get_buffer("pairs")]
        return torch.sigmoid(self.top(torch.cat([low, products], 1)))


class WideAndDeep(nn.Module):
    """Wide & Deep (Cheng et al. 2016): a linear model and a neural network, whose outputs are added."""

    def __init__(self, dense: int, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.fields, self.weights = _Fields(fields, rows, width), _Fields(fields, rows, 1)
        self.wide = nn.Linear(dense, 1)
        self.deep = mlp(dense + fields * width, 1024, 512, 256, 1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Maps dense features, [batch, dense], and categories, [batch, fields], to click probabilities, [batch, 1]."""
        wide = self.wide(dense) + self.weights(ids).sum(1)
        return torch.sigmoid(wide + self.deep(torch.cat([dense, self.fields(ids).flatten(1)], 1)))


class DeepFM(nn.Module):
    """DeepFM (Guo et al. 2017): a factorisation machine and a network that share the embeddings of one large table."""

    def __init__(self, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.arange(fields) * rows, persistent=False)
        self.table, self.weights = nn.Embedding(fields * rows, width), nn.Embedding(fields * rows, 1)
        self.deep = nn.Sequential(
            nn.Linear(fields * width, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Linear(400, 400), nn.BatchNorm1d(400),
            nn.ReLU(), nn.Linear(400, 1),
        )  # fmt: skip

    def forward(self, ids: Tensor) -> Tensor:
        """Maps the category of each field, [batch, fields], to click probabilities, [batch, 1]."""
        ids = ids + self.get_buffer("offsets")
        embedded = self.table(ids)
        machine = (embedded.sum(1).square() - embedded.square().sum(1)).sum(1, keepdim=True) / 2
        return torch.sigmoid(self.weights(ids).sum(1) + machine + self.deep(embedded.flatten(1)))


class Ncf(nn.Module):
    """NeuMF (He et al. 2017): matches users and items by the product of their embeddings and by a network."""

    def __init__(self, users: int, items: int, width: int) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(users, 2 * width), nn.Embedding(items, 2 * width)
        self.deep = mlp(2 * width, width, width // 2, width // 4)
        self.last = nn.Linear(width + width // 4, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Maps user and item ids, [batch] each, to match probabilities, [batch, 1]."""
        (user_near, user_deep), (item_near, item_deep) = self.user(user).chunk(2, 1), self.item(item).chunk(2, 1)
        deep = self.deep(torch.cat([user_deep, item_deep], 1)).relu()
        return torch.sigmoid(self.last(torch.cat([user_near * item_near, deep], 1)))


class SasRec(nn.Module):
    """SASRec (Kang and McAuley 2018): finds the 10 best next items by causal attention over the previous items."""

    def __init__(self, items: int, width: int, length: int, depth: int) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.places = nn.Parameter(torch.zeros(1, length, width))
        self.layers = nn.Sequential(*(encoder_layer(width, 2, ratio=1, causal=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)

    def forward(self, history: Tensor) -> tuple[Tensor, Tensor]:
        """Maps ids of previous items, [batch, length], to scores and ids of the 10 best next ones, [batch, 10] each."""
        x = self.norm(self.layers(self.items(history) + self.places)[:, -1])
        best = torch.topk(x @ self.items.weight.t(), 10)
        return best.values, best.indices
