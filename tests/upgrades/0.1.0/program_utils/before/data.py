import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def loaders(batch_size):
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    train, test = TensorDataset(x[:1500], y[:1500]), TensorDataset(x[1500:], y[1500:])
    return DataLoader(train, batch_size, shuffle=True), DataLoader(test, 100)
