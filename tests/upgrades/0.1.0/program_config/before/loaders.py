import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class BaseLoader(DataLoader):
    """A loader that can give a loader of the rows that it left out."""

    def __init__(self, dataset, batch_size, validation):
        self.n_samples = len(dataset) - validation
        self.held_out = TensorDataset(*dataset[self.n_samples :])
        super().__init__(TensorDataset(*dataset[: self.n_samples]), batch_size=batch_size, shuffle=True)

    def split_validation(self):
        return DataLoader(self.held_out, batch_size=100)


class DigitsLoader(BaseLoader):
    def __init__(self, batch_size, validation):
        found = load_digits()
        x, y = torch.tensor(found.data, dtype=torch.float32) / 16, torch.tensor(found.target)
        super().__init__(TensorDataset(x, y), batch_size, validation)
