import torch
from torch.utils.data import DataLoader
from torchlift.runtime import Accelerator

model = torch.nn.Linear(8, 2)
loader = DataLoader(train, batch_size=32)
test_loader = DataLoader(test, batch_size=100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accelerator = Accelerator()
model, optimizer, loader, test_loader = accelerator.prepare(
    model, optimizer, loader, test_loader
)
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
correct = 0
for x, y in test_loader:
    scores = model(x)
    scores, y = accelerator.gather_for_metrics((scores, y))
    correct += (scores.argmax(1) == y).sum().item()
