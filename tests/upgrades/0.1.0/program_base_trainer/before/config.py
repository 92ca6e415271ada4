from dataclasses import dataclass

import torch


@dataclass
class Config:
    epochs: int = 2
    batch_size: int = 32
    lr: float = 0.1
    resume: str = ""
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
