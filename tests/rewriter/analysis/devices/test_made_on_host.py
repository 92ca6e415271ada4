"""What is made on the CPU out of a batch keeps its move; and it is moved where it meets what a loader has yielded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Trained = Callable[..., tuple[str, list[str]]]
DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nmodel_device = device'
LOSS = "y = {value}\nloss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))"


def moved(trained: Trained, value: str, top: str = "") -> bool:
    """Whether the target still has its move, after it was made from the batch in some way."""
    text, _ = trained(top=f"import numpy as np\n{DEVICE}\n{top}", loss=LOSS.format(value=value))
    assert "model(x)" in text, "the batch itself is on the device"
    assert "y.to(accelerator.device)" in text or "model(x), y)" in text
    return "y.to(accelerator.device)" in text


@pytest.mark.parametrize(
    "value",
    [
        "torch.tensor(y.tolist())",
        "torch.tensor([[float(n)] for n in y])",
        "torch.from_numpy(np.asarray(y.cpu()))",
        "torch.as_tensor(np.stack([row.cpu().numpy() for row in y]))",
        "torch.FloatTensor(y.tolist()).view(-1, 1)",
        "torch.cat([torch.zeros(len(y), 1), torch.tensor(y.tolist())])",
        "encode(y)",
        "[encode(row) for row in y][0]",
        "y.float() if y.dim() > 1 else encode(y)",
    ],
)
def test_a_tensor_made_anew_is_moved(value: str, trained: Trained) -> None:
    assert moved(trained, value, "def encode(rows):\n    return torch.tensor(rows.tolist()).float()\n")


@pytest.mark.parametrize(
    "value",
    [
        "y.float().view(-1, 1)",
        "torch.stack([row for row in y])",
        "torch.nn.functional.one_hot(y, 2).float()",
        "torch.zeros_like(y) + y",
        "torch.as_tensor(y, dtype=torch.float32)",
        "scale(y)",
        "y[:, 0] / y.new_tensor(2.0)",
    ],
)
def test_what_stays_on_the_device_is_not(value: str, trained: Trained) -> None:
    assert not moved(trained, value, "def scale(rows):\n    return (rows - rows.mean(1, keepdim=True)).float()\n")


@pytest.mark.parametrize(
    ("value", "placed"),
    [
        ("torch.cat([x, zeros], dim=1)", "torch.cat([x, zeros.to(accelerator.device)], dim=1)"),
        ("torch.cat((zeros, x[:, :4]), 1)", "torch.cat((zeros.to(accelerator.device), x[:, :4]), 1)"),
        ("x + zeros", "x + zeros.to(accelerator.device)"),
        ("torch.where(x > 0, x, zeros)", "torch.where(x > 0, x, zeros.to(accelerator.device))"),
        ("x * torch.rand(len(x), 1)", "x * torch.rand(len(x), 1).to(accelerator.device)"),
    ],
)
def test_a_new_tensor_meets_the_batch_on_the_device(value: str, placed: str, trained: Trained) -> None:
    loss = f"zeros = torch.zeros(len(x), 4)\nx = {value}\nx = x.to(device)\n"
    text, _ = trained(top=DEVICE, loss=f"{loss}loss = torch.nn.functional.cross_entropy(model(x), y.to(device))")
    assert f"x = {placed}\n" in text


@pytest.mark.parametrize("made", ["torch.zeros(len(x), 4, device=device)", "torch.zeros_like(x)", "len(x) * 0.5"])
def test_what_is_there_already_is_left(made: str, trained: Trained) -> None:
    loss = f"zeros = {made}\nx = x + zeros\nx = x.to(device)\n"
    text, _ = trained(top=DEVICE, loss=f"{loss}loss = torch.nn.functional.cross_entropy(model(x), y.to(device))")
    assert "x = x + zeros\n" in text


def test_a_batch_that_the_script_moves_first_meets_what_it_moved(trained: Trained) -> None:
    """It was right on one device, so the other side was there, too."""
    loss = "noise = torch.rand(len(x), 8)\nx = x.to(device)\nnoise = noise.to(device)\nx = x + noise\n"
    text, _ = trained(top=DEVICE, loss=f"{loss}loss = torch.nn.functional.cross_entropy(model(x), y.to(device))")
    assert "x = x + noise\n" in text and "noise = noise.to(accelerator.device)" in text


def test_what_the_script_builds_on_the_cpu_stays_there(trained: Trained) -> None:
    """It is not the batch that the others meet: placed without it they would be on another device."""
    loss = "x = torch.tensor(x.tolist())\nx = torch.cat([x, torch.zeros(len(x), 4)], dim=1)\nx = x.to(device)\n"
    text, _ = trained(top=DEVICE, loss=f"{loss}loss = torch.nn.functional.cross_entropy(model(x), y.to(device))")
    assert "x = torch.cat([x, torch.zeros(len(x), 4)], dim=1)\n" in text and "x = x.to(accelerator.device)" in text


INTO = {
    "places of a new tensor": (
        "onehot = torch.zeros(len(y), 4)\nonehot[torch.arange(len(y)), y.long()] = 1",
        "onehot[torch.arange(len(y)), y.long().cpu()] = 1",
    ),
    "scattered": (
        "onehot = torch.zeros(len(y), 4)\nonehot.scatter_(1, y.view(-1, 1), 1)",
        "onehot.scatter_(1, y.view(-1, 1).cpu(), 1)",
    ),
    "scattered at once": (
        "onehot = torch.zeros(len(y), 4).scatter_(1, y.view(-1, 1), 1)",
        "onehot = torch.zeros(len(y), 4).scatter_(1, y.view(-1, 1).cpu(), 1)",
    ),
}


@pytest.mark.parametrize(("lines", "line"), INTO.values(), ids=INTO)
def test_an_index_into_a_tensor_of_the_cpu_is_taken_there(lines: str, line: str, trained: Trained) -> None:
    loss = f"{lines}\nloss = torch.nn.functional.mse_loss(model(x.to(device)), onehot.to(device))"
    text, _ = trained(top=DEVICE, loss=loss)
    assert line in text
    assert "onehot.to(accelerator.device)" in text


FEATURES = f"{DEVICE}\nfeatures = torch.randn(100, 8)"
ROWS_OF = {
    "rows that are moved": ("x = features[x].to(device)", "x = features[x.cpu()].to(accelerator.device)"),
    "rows that are moved later": ("x = features[x]\nx = x.to(device)", "x = features[x.cpu()]\n"),
    "rows of what is known to be moved": ("x = read()[x].to(device)", "x = read()[x.cpu()].to(accelerator.device)"),
}


@pytest.mark.parametrize(("line", "new"), ROWS_OF.values(), ids=ROWS_OF)
def test_rows_of_a_tensor_of_the_cpu_are_chosen_there(line: str, new: str, trained: Trained) -> None:
    """A loader of row numbers: they come on the device, and the rows are on the CPU."""
    loss = f"{line}\nloss = torch.nn.functional.cross_entropy(model(x), y.to(device))"
    text, _ = trained(top=FEATURES, loss=loss)
    assert new in text.replace("        ", "")


def test_an_index_that_is_moved_with_its_tensor_stays(trained: Trained) -> None:
    lines = "y = y.to(device)\nonehot = torch.zeros(len(y), 4, device=device)\nonehot.scatter_(1, y.view(-1, 1), 1)"
    text, _ = trained(top=DEVICE, loss=f"{lines}\nloss = torch.nn.functional.mse_loss(model(x.to(device)), onehot)")
    assert "onehot.scatter_(1, y.view(-1, 1), 1)" in text


def test_a_picture_of_a_batch_is_taken_to_the_cpu(trained: Trained) -> None:
    top = (
        f"import torchvision\n{DEVICE}\ndef show(picture):\n    return picture.numpy()\n"
        "def look(some):\n    return show(torchvision.utils.make_grid(some))\n"
    )
    text, _ = trained(top=top, loss="look(x)\nloss = model(x.to(device)).mean()")
    assert "return picture.cpu().numpy()" in text
