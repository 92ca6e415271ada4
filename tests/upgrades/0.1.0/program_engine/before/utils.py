import torch


def log(text):
    print(text)


def save(model, path):
    torch.save(model.state_dict(), path)
