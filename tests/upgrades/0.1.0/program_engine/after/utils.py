import torch
from torchlift.runtime import PartialState


def log(text):
    PartialState().print(text)


def save(model, path, accelerator):
    accelerator.save(accelerator.get_state_dict(model), path)
