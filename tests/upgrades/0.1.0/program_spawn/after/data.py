import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset


def digits():
    found = load_digits()
    x, y = torch.tensor(found.data, dtype=torch.float32) / 16, torch.tensor(found.target)
    return TensorDataset(x[:1500], y[:1500]), TensorDataset(x[1500:], y[1500:])
