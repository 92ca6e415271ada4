import argparse
import os
import shutil

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator

parser = argparse.ArgumentParser(description='Digits training that can be continued')
parser.add_argument('--epochs', default=4, type=int, metavar='N', help='number of total epochs to run')
parser.add_argument('-b', '--batch-size', default=32, type=int, metavar='N')
parser.add_argument('--lr', '--learning-rate', default=0.1, type=float, metavar='LR')
parser.add_argument('--momentum', default=0.9, type=float, metavar='M')
parser.add_argument('--max-norm', default=2.0, type=float, help='gradients are clipped to this norm')
parser.add_argument('--resume', default='', type=str, metavar='PATH', help='path to latest checkpoint (default: none)')
parser.add_argument('--out', default='.', type=str, metavar='DIR', help='where checkpoints are written')
parser.add_argument('--seed', default=5, type=int, help='seed for initializing training')


def build_model():
    return nn.Sequential(
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def get_data():
    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    x = torch.from_numpy((digits.data[order] / 16.0).astype('float32'))
    y = torch.from_numpy(digits.target[order])
    return TensorDataset(x[:1437], y[:1437]), TensorDataset(x[1437:], y[1437:])


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)

    accelerator = Accelerator()

    # create model
    model = build_model()

    # define loss function (criterion), optimizer and learning rate schedule
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), args.lr, momentum=args.momentum)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)

    start_epoch = 0
    best_acc1 = 0.0

    # optionally resume from a checkpoint
    if args.resume:
        if os.path.isfile(args.resume):
            accelerator.print("=> loading checkpoint '{}'".format(args.resume))
            checkpoint = torch.load(args.resume, map_location=accelerator.device)
            start_epoch = checkpoint['epoch']
            best_acc1 = checkpoint['best_acc1']
            model.load_state_dict(checkpoint['model'])
            optimizer.load_state_dict(checkpoint['optimizer'])
            scheduler.load_state_dict(checkpoint['scheduler'])
            accelerator.print("=> loaded checkpoint '{}' (epoch {})".format(args.resume, checkpoint['epoch']))
        else:
            accelerator.print("=> no checkpoint found at '{}'".format(args.resume))

    train_dataset, val_dataset = get_data()
    train_loader = DataLoader(train_dataset, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_dataset, batch_size=args.batch_size, shuffle=False)
    model, optimizer, train_loader, val_loader = accelerator.prepare(
        model, optimizer, train_loader, val_loader
    )

    for epoch in range(start_epoch, args.epochs):
        # train for one epoch
        train(train_loader, model, criterion, optimizer, epoch, accelerator, args)

        # evaluate on validation set
        acc1 = validate(val_loader, model, criterion, accelerator)

        scheduler.step()

        # remember best acc@1 and save checkpoint
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)

        path = os.path.join(args.out, 'checkpoint.pth.tar')
        accelerator.save({
            'epoch': epoch + 1,
            'seed': args.seed,
            'model': accelerator.get_state_dict(model),
            'best_acc1': best_acc1,
            'optimizer': optimizer.state_dict(),
            'scheduler': scheduler.state_dict(),
        }, path)
        if is_best:
            if accelerator.is_main_process:
                shutil.copyfile(path, os.path.join(args.out, 'model_best.pth.tar'))

    accelerator.print('best Acc@1 {:.3f}'.format(best_acc1))


def train(train_loader, model, criterion, optimizer, epoch, accelerator, args):
    model.train()

    for i, (images, target) in enumerate(train_loader):
        # compute output
        output = model(images)
        loss = criterion(output, target)

        # compute gradient and do SGD step
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), max_norm=args.max_norm)
        optimizer.step()

        if i % 15 == 0:
            accelerator.print('Epoch: [{0}][{1}/{2}]\tLoss {3:.4e}'.format(epoch, i, len(train_loader), loss.item()))


def validate(val_loader, model, criterion, accelerator):
    model.eval()
    loss_sum, hits, count = 0.0, 0, 0

    with torch.no_grad():
        for images, target in val_loader:
            # compute output
            output = model(images)
            output, target = accelerator.gather_for_metrics((output, target))
            loss = criterion(output, target)

            # measure accuracy and record loss
            hits += output.argmax(dim=1).eq(target).sum().item()
            loss_sum += loss.item() * target.size(0)
            count += target.size(0)

    accelerator.print(' * Acc@1 {:.3f} Loss {:.4f}'.format(100.0 * hits / count, loss_sum / count))
    return 100.0 * hits / count


if __name__ == '__main__':
    main()
