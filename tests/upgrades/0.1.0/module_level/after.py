import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset
from torchlift.runtime import Accelerator


# Device configuration
accelerator = Accelerator()

# Hyper-parameters
input_size = 64
hidden_size = 100
num_classes = 10
num_epochs = 2
batch_size = 40
learning_rate = 0.01

torch.manual_seed(7)


class Digits(Dataset):
    """Every sixth digit is kept for testing."""

    def __init__(self, train):
        digits = load_digits()
        wanted = [i for i in range(len(digits.target)) if (i % 6 != 0) == train]
        self.images = digits.images[wanted] / 16.0
        self.labels = digits.target[wanted]

    def __getitem__(self, index):
        image = torch.tensor(self.images[index], dtype=torch.float32)
        return image, int(self.labels[index])

    def __len__(self):
        return len(self.labels)


train_dataset = Digits(train=True)
test_dataset = Digits(train=False)

# Data loader
train_loader = DataLoader(dataset=train_dataset,
                          batch_size=batch_size,
                          shuffle=True)

test_loader = DataLoader(dataset=test_dataset,
                         batch_size=batch_size,
                         shuffle=False)


# Fully connected neural network with one hidden layer
class NeuralNet(nn.Module):
    def __init__(self, input_size, hidden_size, num_classes):
        super(NeuralNet, self).__init__()
        self.fc1 = nn.Linear(input_size, hidden_size)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(hidden_size, num_classes)

    def forward(self, x):
        out = self.fc1(x)
        out = self.relu(out)
        out = self.fc2(out)
        return out


model = NeuralNet(input_size, hidden_size, num_classes)

# Loss and optimizer
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
model, optimizer, train_loader, test_loader = accelerator.prepare(
    model, optimizer, train_loader, test_loader
)

# Train the model
total_step = len(train_loader)
for epoch in range(num_epochs):
    for i, (images, labels) in enumerate(train_loader):
        # 8x8 pixels in one row
        images = images.reshape(-1, 8*8)

        # Forward pass
        outputs = model(images)
        loss = criterion(outputs, labels)

        # Backward and optimize
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()

        if (i+1) % 10 == 0:
            accelerator.print('Epoch [{}/{}], Step [{}/{}], Loss: {:.4f}'
                  .format(epoch+1, num_epochs, i+1, total_step, loss.item()))

# Test the model
# (no gradients are needed here, which saves memory)
model.eval()
with torch.no_grad():
    correct = 0
    total = 0
    for images, labels in test_loader:
        images = images.reshape(-1, 8*8)
        outputs = model(images)
        outputs, labels = accelerator.gather_for_metrics((outputs, labels))
        _, predicted = torch.max(outputs.data, 1)
        total += labels.size(0)
        correct += (predicted == labels).sum().item()

    accelerator.print('Accuracy of the network on the {} test images: {:.2f} %'.format(total, 100 * correct / total))

# Save the model checkpoint
accelerator.save(accelerator.get_state_dict(model), 'model.ckpt')
