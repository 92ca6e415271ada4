import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from models import *

LATENT = 16


def main():
    torch.manual_seed(3)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    digits = load_digits()
    pixels = torch.tensor(digits.images, dtype=torch.float32).view(-1, 64) / 8 - 1
    loader = DataLoader(TensorDataset(pixels), batch_size=50, shuffle=True)

    netG = Generator(LATENT).to(device)
    netD = Discriminator().to(device)
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = nn.BCELoss()
    optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))

    for epoch in range(2):
        for i, (real,) in enumerate(loader):
            real = real.to(device)
            n = real.size(0)
            valid, fake = torch.ones(n, 1, device=device), torch.zeros(n, 1, device=device)

            optD.zero_grad()
            images = netG(torch.randn(n, LATENT, device=device))
            d_loss = (criterion(netD(real), valid) + criterion(netD(images.detach()), fake)) / 2
            d_loss.backward()
            optD.step()

            optG.zero_grad()
            g_loss = criterion(netD(images), valid)
            g_loss.backward()
            optG.step()
            if i % 20 == 0:
                print(f"[{epoch}/{i}] D {d_loss.item():.4f} G {g_loss.item():.4f}")
    torch.save({"G": netG.state_dict(), "D": netD.state_dict()}, "gan.pt")


if __name__ == "__main__":
    main()
