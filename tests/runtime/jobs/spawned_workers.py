"""The accelerator is made at the top of a script that loader workers import anew: they do not join the job."""

import torch
from torch.utils.data import DataLoader, Dataset

from torchlift.runtime import Accelerator

accelerator = Accelerator()


class Rows(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor(float(index))


if __name__ == "__main__":
    loader = accelerator.prepare(DataLoader(Rows(), batch_size=2, num_workers=1, multiprocessing_context="spawn"))
    total = sum(accelerator.gather(batch).sum().item() for batch in loader)
    print("total", int(total), "of", accelerator.num_processes, flush=True)
