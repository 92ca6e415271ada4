import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--n_epochs", type=int, default=20, help="number of epochs of training")
parser.add_argument("--batch_size", type=int, default=50, help="size of the batches")
parser.add_argument("--lr", type=float, default=0.0002, help="adam: learning rate")
parser.add_argument("--b1", type=float, default=0.5, help="adam: decay of first order momentum of gradient")
parser.add_argument("--latent_dim", type=int, default=16, help="dimensionality of the latent space")
parser.add_argument("--sample_interval", type=int, default=20, help="batches between two sample grids")
parser.add_argument("--seed", type=int, default=3)
parser.add_argument("--out", type=str, default="gan_out", help="where samples and weights go")
opt = parser.parse_args()

torch.manual_seed(opt.seed)
os.makedirs(opt.out, exist_ok=True)

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight, 0.0, 0.05)
        nn.init.zeros_(m.bias)


def make_noise(n, device):
    return torch.randn(n, opt.latent_dim, device=device)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(opt.latent_dim, 64),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(64, 128),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(128, 64),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(64, 128),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(128, 1),
            nn.Sigmoid(),
        )

    def forward(self, img):
        return self.model(img)


# pixels between -1 and 1, as the generator's tanh gives them
digits = load_digits()
pixels = torch.tensor(digits.images, dtype=torch.float32) / 8 - 1
dataloader = DataLoader(TensorDataset(pixels, torch.tensor(digits.target)), batch_size=opt.batch_size, shuffle=True)

generator = Generator().to(device)
discriminator = Discriminator().to(device)
generator.apply(weights_init)
discriminator.apply(weights_init)

criterion = nn.BCELoss()

optimizer_G = torch.optim.Adam(generator.parameters(), lr=opt.lr, betas=(opt.b1, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=opt.lr, betas=(opt.b1, 0.999))

# the same 16 points at every visit, to watch the digits grow
fixed_noise = make_noise(16, device)

# ----------
#  Training
# ----------

for epoch in range(opt.n_epochs):
    for i, (imgs, _) in enumerate(dataloader):
        real_imgs = imgs.view(imgs.size(0), -1).to(device)
        n = real_imgs.size(0)
        valid = torch.ones(n, 1, device=device)
        fake = torch.zeros(n, 1, device=device)

        # -----------------
        #  Train Generator
        # -----------------

        optimizer_G.zero_grad()
        gen_imgs = generator(make_noise(n, device))
        g_loss = criterion(discriminator(gen_imgs), valid)
        g_loss.backward()
        optimizer_G.step()

        # ---------------------
        #  Train Discriminator
        # ---------------------

        optimizer_D.zero_grad()
        real_loss = criterion(discriminator(real_imgs), valid)
        fake_loss = criterion(discriminator(gen_imgs.detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        d_loss.backward()
        optimizer_D.step()

        batches_done = epoch * len(dataloader) + i
        if batches_done % opt.sample_interval == 0:
            print(
                "[Epoch %d/%d] [Batch %d/%d] [D loss: %f] [G loss: %f]"
                % (epoch, opt.n_epochs, i, len(dataloader), d_loss.item(), g_loss.item())
            )
            with torch.no_grad():
                samples = generator(fixed_noise).cpu().numpy()
            # 4 x 4 digits of 8 x 8 pixels
            grid = samples.reshape(4, 4, 8, 8).transpose(0, 2, 1, 3).reshape(32, 32)
            np.save(os.path.join(opt.out, "%d.npy" % batches_done), grid)

torch.save(generator.state_dict(), os.path.join(opt.out, "generator.pth"))
torch.save(discriminator.state_dict(), os.path.join(opt.out, "discriminator.pth"))
