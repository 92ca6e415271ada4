"""What the analysis asks about a process's surroundings: files, the console, the clock, other programs."""

from __future__ import annotations

import sys
from functools import cache

from .kinds import outside, tensors, training
from .loading import methods, named, row, transfer

# ---------------------------------------------------------------- what differs from process to process


def stamps(name: str) -> bool:
    """Whether a call returns what scripts use in names, and what differs although every process runs the same code."""
    found = row(name)
    return (
        found is not None and isinstance(found.transfer, (outside.PerProcess, tensors.Random)) and found.transfer.stamp
    )


def is_per_process(name: str) -> bool:
    """Whether a call returns what differs between processes and is not random: the clock, the number of a process."""
    return transfer(name, outside.PerProcess) is not None


def interrupts(name: str) -> bool:
    """Whether a call has a function run when something happens to one process alone: a signal."""
    return transfer(name, outside.Interrupt) is not None


def unique(name: str) -> bool:
    """Whether a call returns what no other process gets: a temporary folder, a random id."""
    found = transfer(name, outside.PerProcess)
    return found is not None and found.unique


def makes_text(name: str) -> bool:
    """Whether a call makes a text, a number or a path from its arguments, and does nothing else."""
    return transfer(name, outside.TextOf) is not None


def may_find_nothing(name: str) -> bool:
    """Whether a call gives None where it finds nothing, and a value otherwise."""
    found = transfer(name, outside.TextOf)
    return found is not None and found.finds


def reads(name: str) -> bool:
    """Whether a call reads a file whose path it is given."""
    found = row(name)
    read = found.transfer if found is not None else None
    return isinstance(read, training.Checkpoint) or (isinstance(read, outside.Read) and read.what == "content")


def temporary_file(name: str) -> bool:
    """Whether a call makes a file of the process's own."""
    found = transfer(name, outside.PerProcess)
    return found is not None and found.file


def opens(name: str) -> bool:
    """Whether a call opens a file; its mode says what for."""
    return transfer(name, outside.Open) is not None


def asks_existence(name: str) -> bool:
    """Whether a call asks if there is a file or a folder."""
    found = transfer(name, outside.Read)
    return found is not None and found.what == "existence"


def asks_state(name: str) -> bool:
    """Whether a call asks for what a file that is not there does not have: its size, its time."""
    found = transfer(name, outside.Read)
    return found is not None and found.what == "state"


@cache
def path_methods(*whats: str) -> frozenset[str]:
    """The methods by which a path reads its file, or asks about it."""
    return frozenset(
        n for n in methods("pathlib.Path", outside.Read) if named(outside.Read)[f"pathlib.Path.{n}"].what in whats
    )


def may_touch(name: str) -> bool:
    """Whether a call that is given the path of a file may look at the file: by its row, or because nothing is known of
    it, as of another package's function that sends it somewhere."""
    found = row(name)
    if found is None:
        package, _, inner = name.partition(".")
        return bool(inner) and package not in sys.stdlib_module_names
    return isinstance(
        found.transfer, (outside.Read, outside.Open, outside.Command, training.Dataset, training.ModelClass)
    )


def runs_command(name: str) -> bool:
    """Whether a call runs another program."""
    return transfer(name, outside.Command) is not None


def lists(name: str) -> bool:
    """Whether a call lists a folder."""
    found = transfer(name, outside.Read)
    return found is not None and found.what == "listing"


def keeps_path(name: str) -> bool:
    """Whether an outside callable makes a path or a text from its arguments."""
    found = row(name)
    return asks_existence(name) or (
        found is not None and isinstance(found.transfer, (outside.TextOf, outside.PerProcess, tensors.Same))
    )


# ---------------------------------------------------------------- what is written, fetched, searched


def pictures(name: str) -> bool:
    """Whether a call draws what it is given into a picture."""
    return transfer(name, outside.Picture) is not None


def fetches(name: str) -> bool:
    """Whether a call fetches something and leaves it in a folder, or unpacks it there."""
    return transfer(name, outside.Download) is not None


def fetches_by_method(name: str) -> bool:
    """Whether a method does so: its row is of that method, and not of all that a package has."""
    found = row(name)
    return found is not None and isinstance(found.transfer, outside.Download) and not found.name.endswith("*")


def finds_fetched(name: str) -> bool:
    """Whether such a call uses what is there already: whoever comes later finds it."""
    found = transfer(name, outside.Download)
    return found is not None and found.keeps


def writes(name: str) -> bool:
    """Whether a call changes something outside the process: a file, a window, the settings of a package."""
    return transfer(name, outside.Write) is not None


def takes_away(name: str) -> bool:
    """Whether a call removes or renames a file or a folder: a second process does not find it any more."""
    found = transfer(name, outside.Write)
    return found is not None and found.how in ("moves", "removes")


def moves(name: str) -> bool:
    """Whether a call renames or moves a file: what it is given first is gone, and second is new."""
    found = transfer(name, outside.Write)
    return found is not None and found.how == "moves"


def settles(name: str) -> bool:
    """Whether a call needs an open file that is one on the disk: ``os.fsync(log.fileno())``."""
    found = transfer(name, outside.Write)
    return found is not None and found.how == "settles"


@cache
def writing_methods() -> frozenset[str]:
    """Methods that do so, by their last names, on whatever object: ``to_csv``, ``write_text``."""
    return frozenset(name.rpartition(".")[2] for name in named(outside.Write) if _is_method(name))


@cache
def text_methods() -> dict[str, str]:
    """Those that write nothing and give the text back where they get no path, with the keyword of the path."""
    found = {name: transfer(name, outside.Write) for name in named(outside.Write) if _is_method(name)}
    return {
        name.rpartition(".")[2]: kind.optional for name, kind in found.items() if kind is not None and kind.optional
    }


def _is_method(name: str) -> bool:
    """Whether a name is that of a method of a class."""
    return name.rpartition(".")[0].rpartition(".")[2][:1].isupper()


def prints_lines(name: str) -> bool:
    """Whether a call writes to the console."""
    return transfer(name, outside.Console) is not None


def shows_model(name: str) -> bool:
    """Whether a call writes a table of a model to the console, for which it may run the model."""
    found = transfer(name, outside.Console)
    return found is not None and found.model


def silenced_by(name: str) -> str:
    """The keyword by which a call that writes to the console writes nothing; empty if it has none."""
    found = transfer(name, outside.Console)
    return found.silent if found is not None else ""


def shows_bar(name: str) -> bool:
    """Whether a call makes a progress bar."""
    return transfer(name, outside.Bar) is not None


def stays_shown(name: str) -> bool:
    """Whether no option of a progress bar turns it off."""
    found = transfer(name, outside.Bar)
    return found is not None and found.stays


def writes_log(name: str) -> bool:
    """Whether a handler of ``logging`` writes a file."""
    return transfer(name, outside.LogFile) is not None


def written_path(name: str) -> int | None:
    """The position of the path or the open file that a call writes; None if that is not known."""
    found = transfer(name, outside.Write)
    return found.path if found is not None else None


def writes_picture(name: str) -> bool:
    """Whether a call writes a picture, for somebody to look at."""
    found = transfer(name, outside.Write)
    return found is not None and found.picture


def written_data(name: str) -> int | None:
    """The position of what a call writes as it is, with all that is in it: ``pickle.dump``."""
    found = transfer(name, outside.Write)
    return found.data if found is not None else None


def in_memory(name: str) -> bool:
    """Whether a call makes a buffer in memory that is written like a file."""
    return transfer(name, outside.InMemory) is not None


def locks(name: str) -> bool:
    """Whether a call makes a lock that one process at a time holds."""
    return transfer(name, outside.Lock) is not None


def ends_process(name: str) -> bool:
    """Whether a call ends the process."""
    return transfer(name, outside.Exit) is not None


def raised_alike(name: str) -> bool:
    """Whether all processes meet an exception at the same place, or none of them."""
    found = transfer(name, outside.Raised)
    return found is not None and found.alike


_NUMBERS = frozenset(
    {"math.inf", "math.nan", "numpy.inf", "numpy.Inf", "numpy.infty", "torch.inf", "sys.maxsize", "sys.float_info.max"}
)


def is_number(name: str) -> bool:
    """Whether a module keeps a plain number under a name."""
    return name in _NUMBERS
