import torch

from data import loaders
from engine import evaluate
from models import Net

net = Net()
net.load_state_dict(torch.load("net.pt"))
print(evaluate(net, loaders(32)[1], torch.device("cpu")))
