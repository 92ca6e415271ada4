import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from models import *
from torchlift.runtime import Accelerator

LATENT = 16


def main():
    torch.manual_seed(3)
    accelerator = Accelerator()
    digits = load_digits()
    pixels = torch.tensor(digits.images, dtype=torch.float32).view(-1, 64) / 8 - 1
    loader = DataLoader(TensorDataset(pixels), batch_size=50, shuffle=True)

    netG = Generator(LATENT)
    netD = Discriminator()
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = nn.BCELoss()
    optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    netG, netD, optG, optD, loader = accelerator.prepare(
        netG, netD, optG, optD, loader
    )

    for epoch in range(2):
        for i, (real,) in enumerate(loader):
            n = real.size(0)
            valid, fake = torch.ones(n, 1, device=accelerator.device), torch.zeros(n, 1, device=accelerator.device)

            optD.zero_grad()
            images = netG(torch.randn(n, LATENT, device=accelerator.device))
            d_loss = (criterion(netD(real), valid) + criterion(netD(images.detach()), fake)) / 2
            accelerator.backward(d_loss)
            optD.step()

            optG.zero_grad()
            g_loss = criterion(netD(images), valid)
            accelerator.backward(g_loss)
            optG.step()
            if i % 20 == 0:
                accelerator.print(f"[{epoch}/{i}] D {d_loss.item():.4f} G {g_loss.item():.4f}")
    accelerator.save({"G": accelerator.get_state_dict(netG), "D": accelerator.get_state_dict(netD)}, "gan.pt")


if __name__ == "__main__":
    main()
