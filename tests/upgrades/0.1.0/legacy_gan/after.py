import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator

os.makedirs("images", exist_ok=True)

parser = argparse.ArgumentParser()
parser.add_argument("--n_epochs", type=int, default=20, help="number of epochs of training")
parser.add_argument("--batch_size", type=int, default=50, help="size of the batches")
parser.add_argument("--latent_dim", type=int, default=16, help="dimensionality of the latent space")
parser.add_argument("--n_classes", type=int, default=10, help="number of classes")
parser.add_argument("--sample_interval", type=int, default=20, help="batches between two sample grids")
opt = parser.parse_args()
accelerator = Accelerator()
accelerator.print(opt)

torch.manual_seed(5)
np.random.seed(5)


def to_categorical(y, num_columns):
    """Returns the labels one-hot encoded"""
    y_cat = np.zeros((y.shape[0], num_columns))
    y_cat[range(y.shape[0]), y] = 1.0
    return Variable(torch.as_tensor(y_cat, dtype=torch.float32, device=accelerator.device))


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.model = nn.Sequential(
            nn.Linear(opt.latent_dim + opt.n_classes, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.Tanh()
        )

    def forward(self, z, labels):
        return self.model(torch.cat((z, labels), -1))


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2))
        self.adv_layer = nn.Sequential(nn.Linear(64, 1), nn.Sigmoid())
        self.aux_layer = nn.Linear(64, opt.n_classes)

    def forward(self, img):
        out = self.body(img)
        return self.adv_layer(out), self.aux_layer(out)


adversarial_loss = torch.nn.BCELoss()
auxiliary_loss = torch.nn.CrossEntropyLoss()

generator = Generator()
discriminator = Discriminator()

digits = load_digits()
images = torch.tensor(digits.data / 8 - 1)
dataloader = DataLoader(
    TensorDataset(images, torch.tensor(digits.target)), batch_size=opt.batch_size, shuffle=True
)

# Optimizers
optimizer_G = torch.optim.Adam(generator.parameters(), lr=0.001)
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=0.001)
generator, discriminator, optimizer_G, optimizer_D, dataloader = accelerator.prepare(
    generator, discriminator, optimizer_G, optimizer_D, dataloader
)


def sample_image(n_row, batches_done):
    """Saves a grid of generated digits"""
    z = Variable(torch.as_tensor(np.zeros((n_row ** 2, opt.latent_dim)), dtype=torch.float32, device=accelerator.device))
    labels = np.array([num for _ in range(n_row) for num in range(n_row)])
    gen_imgs = generator(z, to_categorical(labels, opt.n_classes))
    if accelerator.is_main_process:
        np.save("images/%d.npy" % batches_done, gen_imgs.data.cpu().numpy())


for epoch in range(opt.n_epochs):
    for i, (imgs, labels) in enumerate(dataloader):

        batch_size = imgs.shape[0]

        # Adversarial ground truths
        valid = Variable(torch.empty(batch_size, 1, device=accelerator.device).fill_(1.0), requires_grad=False)
        fake = Variable(torch.empty(batch_size, 1, device=accelerator.device).fill_(0.0), requires_grad=False)

        # Configure input
        real_imgs = Variable(imgs.float())
        given = to_categorical(labels.cpu().numpy(), opt.n_classes)
        labels = Variable(labels.long())

        optimizer_G.zero_grad()

        # Sample noise and labels as generator input
        z = Variable(torch.as_tensor(np.random.normal(0, 1, (batch_size, opt.latent_dim)), dtype=torch.float32, device=accelerator.device))
        gen_labels = np.random.randint(0, opt.n_classes, batch_size)

        gen_imgs = generator(z, to_categorical(gen_labels, opt.n_classes))
        validity, pred_label = discriminator(gen_imgs)
        gt_labels = Variable(torch.as_tensor(gen_labels, dtype=torch.int64, device=accelerator.device))
        g_loss = 0.5 * (adversarial_loss(validity, valid) + auxiliary_loss(pred_label, gt_labels))

        accelerator.backward(g_loss)
        optimizer_G.step()

        optimizer_D.zero_grad()

        real_pred, real_aux = discriminator(real_imgs)
        fake_pred, _ = discriminator(gen_imgs.detach())
        same_pred, _ = discriminator(generator(z, given).detach())
        d_real_loss = adversarial_loss(real_pred, valid) + auxiliary_loss(real_aux, labels)
        d_loss = d_real_loss + adversarial_loss(fake_pred, fake) + adversarial_loss(same_pred, fake)

        accelerator.backward(d_loss)
        optimizer_D.step()

        batches_done = epoch * len(dataloader) + i
        if batches_done % opt.sample_interval == 0:
            accelerator.print("[Epoch %d] [D loss: %f] [G loss: %f]" % (epoch, d_loss.item(), g_loss.item()))
            sample_image(n_row=opt.n_classes, batches_done=batches_done)

accelerator.save(accelerator.get_state_dict(generator), "generator.pt")
