import argparse
import torch
import torch.nn as nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits
from torchlift.runtime import Accelerator


class PixelGRU(nn.Module):
    """Reads a digit row by row."""

    def __init__(self, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(8, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 10)

    def forward(self, rows):
        _, last = self.rnn(rows)
        return self.out(last.squeeze(0))


def warmup_then_linear(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return max(0.0, (total - step) / max(1, total - warmup))

    return LambdaLR(optimizer, factor)


def evaluate(model, dataloader, accelerator):
    model.eval()
    n_right, n_all = 0, 0
    for rows, labels in dataloader:
        with torch.no_grad():
            scores = model(rows)
        scores, labels = accelerator.gather_for_metrics((scores, labels))
        n_right += scores.argmax(dim=1).eq(labels).sum().item()
        n_all += labels.numel()
    return n_right / n_all


def main(args):
    torch.manual_seed(args.seed)
    accelerator = Accelerator(gradient_accumulation_steps=args.accum_steps)

    digits = load_digits()
    rows = torch.tensor(digits.images, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    train_dataloader = DataLoader(TensorDataset(rows[:1510], labels[:1510]), batch_size=args.batch_size, shuffle=True)
    eval_dataloader = DataLoader(TensorDataset(rows[1510:], labels[1510:]), batch_size=100)

    model = PixelGRU()
    loss_fn = nn.CrossEntropyLoss()
    optimizer = AdamW(model.parameters(), lr=args.lr)

    # one update for every accum_steps batches; the rest of an epoch makes one more
    updates_per_epoch = -(-len(train_dataloader) // args.accum_steps)
    scheduler = warmup_then_linear(optimizer, args.warmup, args.epochs * updates_per_epoch)
    model, optimizer, train_dataloader, eval_dataloader, scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, scheduler
    )

    global_step = 0
    for epoch in range(args.epochs):
        model.train()
        optimizer.zero_grad()
        for step, (rows, labels) in enumerate(train_dataloader):
            with accelerator.accumulate(model):
                logits = model(rows)
                loss = loss_fn(logits, labels)
                accelerator.backward(loss)

                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:
                    global_step += 1
                    if global_step % args.log_every == 0:
                        accelerator.print("step %d  loss %.5f  lr %.6f" % (
                            global_step, loss.item(), scheduler.get_last_lr()[0]))

        accuracy = evaluate(model, eval_dataloader, accelerator)
        accelerator.print("epoch %d  updates %d  accuracy %.4f" % (epoch, global_step, accuracy))

    accelerator.save(accelerator.get_state_dict(model), args.output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--accum_steps", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--log_every", type=int, default=5)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--output", type=str, default="pixel_gru.bin")
    main(parser.parse_args())
