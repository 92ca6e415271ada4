"""The small data that public programs are run on: a function a kind, always the same for the same parameters."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import struct
import sys
import wave
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
from PIL import Image  # type: ignore[import-not-found,unused-ignore]

RECIPES: dict[str, Callable[..., None]] = {}


def recipe(function: Callable[..., None]) -> Callable[..., None]:
    """Enter a function among the recipes that `data:` of an entry can name."""
    RECIPES[function.__name__] = function
    return function


def _images(count: int, *shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(0).integers(0, 256, (count, *shape), dtype=numpy.uint8)


def _labels(count: int, classes: int) -> numpy.ndarray:
    return (numpy.arange(count) % classes).astype(numpy.uint8)


@recipe
def mnist(at: Path, train: int = 256, test: int = 128, name: str = "MNIST", packed: bool = False) -> None:
    """The four files of torchvision's `MNIST(root=at)`: 28 x 28 pixels, ten classes. `packed` adds the .gz files."""
    raw = at / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for prefix, count in (("train", train), ("t10k", test)):
        images = struct.pack(">IIII", 2051, count, 28, 28) + _images(count, 28, 28).tobytes()
        labels = struct.pack(">II", 2049, count) + _labels(count, 10).tobytes()
        for kind, data in (("images-idx3", images), ("labels-idx1", labels)):
            (raw / f"{prefix}-{kind}-ubyte").write_bytes(data)
            if packed:
                (raw / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(data, mtime=0))


@recipe
def cifar(at: Path, classes: int = 10, train: int = 250, test: int = 100) -> None:
    """The batches of torchvision's `CIFAR10(root=at)` or `CIFAR100(root=at)`: 32 x 32 pixels in three colours."""
    hundred = classes == 100
    folder = at / ("cifar-100-python" if hundred else "cifar-10-batches-py")
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": train} if hundred else {f"data_batch_{part}": train // 5 for part in range(1, 6)}
    for name, count in {**parts, "test" if hundred else "test_batch": test}.items():
        labels = _labels(count, classes).tolist()
        keys = (
            {"fine_labels": labels, "coarse_labels": [label // 5 for label in labels]}
            if hundred
            else {"labels": labels}
        )
        batch = {"data": _images(count, 3072), **keys, "filenames": [f"{row}.png" for row in range(count)]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    names = [f"class{number}" for number in range(classes)]
    meta = {"fine_label_names": names, "coarse_label_names": names[:20]} if hundred else {"label_names": names}
    (folder / ("meta" if hundred else "batches.meta")).write_bytes(pickle.dumps(meta, protocol=2))


@recipe
def images(
    at: Path,
    folders: Sequence[str] = ("",),
    each: int = 8,
    size: Sequence[int] = (64, 64),
    ending: str = "jpg",
    mode: str = "RGB",
    highest: int = 256,
) -> None:
    """`each` pictures of `size` (width, height) in every folder: `0000.jpg`, ...; pixels are below `highest`."""
    generator = numpy.random.default_rng(0)
    for folder in folders:
        (at / folder).mkdir(parents=True, exist_ok=True)
        for number in range(each):
            shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
            pixels = generator.integers(0, highest, shape, dtype=numpy.uint8)
            Image.fromarray(pixels, mode=mode).save(at / folder / f"{number:04}.{ending}")


@recipe
def words(at: Path, lines: int = 200, each: int = 12, vocabulary: int = 60, separator: str = " ") -> None:
    """A text file of lines of made-up words."""
    generator = random.Random(0)
    known = [
        "".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(2, 8))) for _ in range(vocabulary)
    ]
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text("".join(separator.join(generator.choices(known, k=each)) + "\n" for _ in range(lines)))


@recipe
def text(at: Path, lines: Sequence[str] = ()) -> None:
    """A text file of these lines."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text("".join(line + "\n" for line in lines))


@recipe
def table(
    at: Path, columns: Sequence[str] = (), rows: int = 200, labels: int = 0, start: str = "", header: bool = True
) -> None:
    """A CSV file of numbers. `start`: the first column holds hours from then on; `labels`: the last one classes."""
    generator = numpy.random.default_rng(0)
    at.parent.mkdir(parents=True, exist_ok=True)
    first = numpy.datetime64(start) if start else None
    out = [",".join(columns)] if header else []
    for row in range(rows):
        values = [f"{value:.4f}" for value in generator.normal(size=len(columns))]
        if first is not None:
            values[0] = (
                str(first + numpy.timedelta64(row, "h")).replace("T", " ") + ":00:00"[: 3 if "T" in start else 6]
            )
        if labels:
            values[-1] = str(row % labels)
        out.append(",".join(values))
    at.write_text("\n".join(out) + "\n")


@recipe
def sounds(at: Path, folders: Sequence[str] = ("",), each: int = 4, seconds: float = 1.0, rate: int = 16000) -> None:
    """WAV files of noise, 16 bit, one channel."""
    generator = numpy.random.default_rng(0)
    for folder in folders:
        (at / folder).mkdir(parents=True, exist_ok=True)
        for number in range(each):
            with wave.open(str(at / folder / f"{number:04}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(rate)
                file.writeframes(generator.integers(-3000, 3000, int(seconds * rate), dtype=numpy.int16).tobytes())


@recipe
def mnist_m(at: Path, train: int = 256, test: int = 128) -> None:
    """The two processed files of MNIST-M: tensors of 28 x 28 pixels in three colours, and their labels."""
    import torch

    folder = at / "processed"
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("mnist_m_train.pt", train), ("mnist_m_test.pt", test)):
        pixels, labels = torch.from_numpy(_images(count, 28, 28, 3)), torch.from_numpy(_labels(count, 10)).long()
        torch.save((pixels, labels), folder / name)


@recipe
def mnist_pickle(at: Path, train: int = 256, valid: int = 128) -> None:
    """The old pickled MNIST (mnist.pkl.gz): three pairs of float pixels, 784 in a row, and classes."""
    generator = numpy.random.default_rng(0)
    pairs = tuple(
        (generator.random((count, 784), dtype=numpy.float32), _labels(count, 10).astype(numpy.int64))
        for count in (train, valid, valid)
    )
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_bytes(gzip.compress(pickle.dumps(pairs, protocol=2), mtime=0))


@recipe
def celeba(
    at: Path, attributes: Sequence[str] = (), folder: str = "images", count: int = 8, rows: int = 2030, side: int = 200
) -> None:
    """CelebA: square pictures in `folder`, and `list_attr_celeba.txt`, whose `rows` name them in turn."""
    images(at / folder, each=count, size=(side, side))
    generator = numpy.random.default_rng(0)
    lines = [str(rows), " ".join(attributes)]
    for row in range(rows):
        values = generator.choice([-1, 1], len(attributes))
        lines.append(" ".join([f"{row % count:04}.jpg", *map(str, values)]))
    (at / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")


@recipe
def captions(at: Path, name: str, pictures: int = 4, each: int = 5, longest: int = 8, known: int = 20) -> None:
    """The files of a captioning data set: pictures (HDF5), captions and their lengths, the word map (JSON)."""
    import h5py  # type: ignore[import-not-found,unused-ignore]

    generator = numpy.random.default_rng(0)
    at.mkdir(parents=True, exist_ok=True)
    numbers = {f"word{number}": number + 1 for number in range(known)}
    for extra in ("<unk>", "<start>", "<end>"):
        numbers[extra] = len(numbers) + 1
    numbers["<pad>"] = 0
    (at / f"WORDMAP_{name}.json").write_text(json.dumps(numbers))
    for split in ("TRAIN", "VAL", "TEST"):
        with h5py.File(at / f"{split}_IMAGES_{name}.hdf5", "w") as file:
            file.attrs["captions_per_image"] = each
            file.create_dataset("images", data=_images(pictures, 3, 256, 256))
        lengths = generator.integers(3, longest + 1, pictures * each).tolist()
        inner = [generator.integers(1, known + 1, length).tolist() for length in lengths]
        rows = [[numbers["<start>"], *row, numbers["<end>"], *[0] * (longest - len(row))] for row in inner]
        (at / f"{split}_CAPTIONS_{name}.json").write_text(json.dumps(rows))
        (at / f"{split}_CAPLENS_{name}.json").write_text(json.dumps([length + 2 for length in lengths]))


def main() -> None:
    """Make all data that the recipes on stdin ask for, below the current folder."""
    for asked in json.load(sys.stdin):
        RECIPES[asked.pop("make")](Path(asked.pop("at")), **asked)


if __name__ == "__main__":
    main()
