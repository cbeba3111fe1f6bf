"""P x K batches as stages of webdataset, for pipelines that are written for it.

``group_by_class`` composes into any ``webdataset.WebDataset``. ``batches`` is a whole pipeline of
webdataset's shard list and ``gopen``, so it opens every URL that webdataset knows. Shards of object
stores are fetched by hgld: ``gopen`` has no s3://, and its errors of hf:// quote the token. With an
index it has the batches of ``BatchLoader``'s reader "stream"; without one it groups samples as they
come, and then which batches there are depends on the order of the shards.
"""

import re
import tarfile
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from filecmp import cmp
from functools import partial
from glob import escape
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Literal
from urllib.parse import quote, urlparse
from urllib.request import url2pathname

import numpy as np
import pandas as pd
import torch
import webdataset
from PIL import Image
from webdataset.gopen import rewrite_url
from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_expander, url_opener

from hgld.artifacts import BOX, atomic_path, hash_file, left_behind
from hgld.errors import HgldError, InvalidData, UsageError
from hgld.images.decode import Undecodable, decode_rgb
from hgld.shards.batches import BatchPlan, part_of_rank, step_seed
from hgld.shards.files import LARGE, require_intact
from hgld.shards.foreign import IMAGES, SampleRules
from hgld.shards.index import labels_of
from hgld.shards.load import processes_of
from hgld.shards.read import Batch, Transform, cut_box, stack_images
from hgld.shards.sampling import BatchOptions, Samples
from hgld.shards.schema import IMAGE_CRC32
from hgld.storage import RemoteFolder, is_object_store, masked
from hgld.tasks import track
from hgld.words import single_blanks

Sample = dict[str, Any]
Label = str | Callable[[Sample], Hashable]
Urls = str | Path | Sequence[str | Path]
# keys of a sample for columns of its row, if the rows have them
CRC32, PART = "__crc32__", "__part__"


def group_by_class(
    classes_per_batch: int,
    images_per_class: int,
    label: Label = "cls",
    window: int = 0,
    seed: int = 0,
) -> Callable[[Iterable[Sample]], Iterator[list[Sample]]]:
    """Build a stage that groups samples into batches of P classes with K samples each.

    A class is ready when K of its samples have come. As soon as enough classes are ready, P of them
    leave as one batch, a list of P * K samples. Samples of classes that never fill a batch are left
    out at the end, and all others are held in memory until then: shuffled shards need less than
    class-grouped ones.

    Args:
        classes_per_batch: P.
        images_per_class: K.
        label: member of the sample that holds its class, or a function of the sample, which a JSON
            member needs.
        window: ready classes from which P are drawn by chance; up to P: the first that are ready.
        seed: of the draws, which are the same in each iteration.

    Raises:
        UsageError: P or K is not a whole number, 1 or more.
        InvalidData: while iterating: a sample has no such member.

    Example:
        >>> samples = [{"cls": number // 3} for number in range(9)]
        >>> [[s["cls"] for s in batch] for batch in group_by_class(2, 2)(samples)]
        [[0, 0, 1, 1]]
    """
    BatchOptions(classes_per_batch, images_per_class)  # checks them
    shape = classes_per_batch, images_per_class
    return partial(_group, shape=shape, label=label, window=window, seed=seed)


def _group(
    samples: Iterable[Sample],
    *,
    shape: tuple[int, int],
    label: Label,
    window: int,
    seed: int | Sequence[int],
) -> Iterator[list[Sample]]:
    random, wanted = np.random.default_rng(seed), shape[0]
    coming: defaultdict[Any, list[Sample]] = defaultdict(list)
    ready: dict[Any, deque[list[Sample]]] = {}  # whole groups of K

    def draw() -> list[Sample]:
        classes = list(ready)
        if window > wanted:
            random.shuffle(classes)
        batch = []
        for name in classes[:wanted]:
            batch += ready[name].popleft()
            if not ready[name]:
                del ready[name]
        return batch

    for sample in samples:
        name = _class_of(sample, label)
        coming[name].append(sample)
        if len(coming[name]) == shape[1]:
            ready.setdefault(name, deque()).append(coming.pop(name))
            if len(ready) >= max(window, wanted):
                yield draw()
    while len(ready) >= wanted:
        yield draw()


def _class_of(sample: Sample, label: Label) -> Any:
    if callable(label):
        return label(sample)
    if label.rpartition(".")[2] == "json":
        raise UsageError(
            f"label {label!r}: a JSON member holds no class as it is; give a function, as "
            "label=lambda sample: json.loads(sample['json'])['landmark']"
        )
    if label not in sample:
        there = ", ".join(key for key in sample if not key.startswith("__"))
        raise InvalidData(f"{_name_of(sample)}: has no member {label!r}; it has {there}")
    return sample[label]


def _name_of(sample: Sample) -> str:
    """Shard and key of a sample, for error messages."""
    return f"{masked(sample.get('__url__', ''))}: key {sample.get('__key__')}"


def batches(
    urls: Urls,
    classes_per_batch: int,
    images_per_class: int,
    transform: Transform,
    *,
    rows: pd.DataFrame | None = None,
    seed: int = 0,
    rank: int = 0,
    world_size: int | None = None,
    label: Label = "cls",
    window: int = 0,
    small_classes: Literal["drop", "repeat"] = "drop",
    pipe: bool = False,
) -> "webdataset.DataPipeline":
    """Build a pipeline of batches: images (B, ...), labels, and the B keys of the samples.

    It is an ``IterableDataset``: iterate over it, compose further stages, or give it to a
    ``DataLoader`` or ``WebLoader``. Each iteration is the next epoch; a
    loader with workers needs ``persistent_workers=True`` for that, and its workers share the
    batches of an epoch, although each of them reads all shards.

    Args:
        urls: shards as webdataset names them: paths or URLs, with braces, or a list.
        classes_per_batch: P.
        images_per_class: K.
        transform: converts a PIL image in RGB to a tensor.
        rows: rows of the index of these shards, whose keys may have dots (``last_dot``). Labels
            are then (B, L), and the batches, also of parts of photos (columns ``BOX``), those of
            ``BatchLoader`` with ``reader="stream"`` and one lane. None: groups samples as they
            come, and labels are (B,) numbers of the classes.
        seed: of plan, augmentation and draws.
        rank: of this process.
        world_size: processes that share each batch; default: 1, with a warning if torch.distributed
            has several processes, which would all train on the same images.
        label: without rows: member of a sample that holds its class, or a function of the sample.
        window: without rows: ready classes from which P are drawn by chance.
        small_classes: with rows: whether classes of fewer than K images are left out or repeated.
        pipe: whether URLs may run commands ("pipe:...").

    Raises:
        UsageError: no URL is given; one runs a command and ``pipe`` is False; P or K is not a
            whole number, 1 or more; ranks do not divide the batch; an option has no effect with, or
            without, rows.
        InvalidData: a shard of the rows is not among the URLs; while iterating: a sample has no
            image or class, its class is not a number (without rows), its image is not decodable or
            not the one of its row (CRC-32), a box has no pixel of its photo, a shard is not a whole
            tar, or no batch is filled.
        HgldError: (while iterating) a URL cannot be read.
    """
    shards = _list_shards(urls)
    if not shards:
        raise UsageError("urls is empty; expected a shard or more")
    _refuse_commands(shards, pipe)
    options = BatchOptions(
        classes_per_batch, images_per_class, order="shards", small_classes=small_classes
    )
    processes = processes_of(world_size, "hgld.shards.webdataset.batches")
    part = part_of_rank(classes_per_batch * images_per_class, rank, processes)
    if rows is not None and (label != "cls" or window):
        raise UsageError("label and window are of batches without rows, which state the classes")
    if rows is None and small_classes != "drop":
        raise UsageError("small_classes needs rows: without them, it is not known which are small")
    if rows is None:
        # by number, since members of one class may be b"1" and b"1\n"
        number = partial(_number_of, label=label)
        shape = classes_per_batch, images_per_class
        source: Any = webdataset.SimpleShardList(shards)
        read: Any = _read_tars
        stages: list[Any] = [_Grouped(number, shape, window, seed)]
    else:
        planned = _Planned(rows, BatchPlan(Samples.of_index(rows), options, seed=seed), shards)
        source, stages = planned.shards, [planned]
        last_dot = bool(rows["key"].str.contains(r"\.[^/]*$").any())
        read = partial(_read_tars, split=_split_at_last_dot if last_dot else base_plus_ext)
    load = _Load(transform, part, seed)
    return webdataset.DataPipeline(source, read, *stages, webdataset.split_by_worker, load)


def write_shards(
    urls: Urls,
    pattern: str,
    *,
    pipe: bool = False,
    start: int = 0,
    hashes: Sequence[str] | None = None,
) -> list[str]:
    """Copy shards through webdataset's ``TarWriter``, to any URL that its ``gopen`` writes.

    Each shard becomes one shard of the same samples and, if it was exported, of the same bytes. A
    copy on this machine appears when it is whole and replaces no other file; the same call resumes.

    Args:
        urls: shards as in ``batches``.
        pattern: URL with a number, as ``pipe:ssh host 'cat > train-%06d.tar'``.
        pipe: whether URLs may run commands ("pipe:...").
        start: number of the first shard.
        hashes: SHA-256 of each shard, as the manifest has them; None: they are not compared.

    Returns:
        The URLs of the new shards.

    Raises:
        UsageError: a URL runs a command and ``pipe`` is False; the pattern has no number, or would
            write over a shard that is read, or over a file with other bytes.
        InvalidData: a shard is not a whole tar, or is not the one of its hash; a copy on another
            machine is then written already.
        HgldError: a URL cannot be read or written.
        OSError: a file of this machine cannot be.
    """
    shards = _list_shards(urls)
    _refuse_commands([*shards, pattern], pipe)
    try:
        written = [pattern % number for number in range(start, start + len(shards))]
    except (TypeError, ValueError):
        raise UsageError(f"{masked(pattern)}: expected one number, as in train-%06d.tar") from None
    sources, copies = (
        [path and path.resolve() for path in map(_local_path, urls)] for urls in (shards, written)
    )
    if own := {*filter(None, sources)} & {*filter(None, copies)}:
        raise UsageError(f"{min(own)}: would be written while it is read; give another URL")
    options = {"encoder": False, "mtime": 0, "user": "hgld", "group": "hgld", "mode": 0o444}
    options |= {"keep_meta": True}  # members such as KEY._mask.png
    for number, shard in enumerate(track(shards, "Copying shards", len(shards))):
        known = {} if hashes is None else {"sha256": hashes[number]}
        copy = copies[number]
        if known and copy and copy.is_file() and hash_file(copy) == known["sha256"]:
            continue
        with (
            _masked_errors(),
            _new_file(written[number]) as stream,
            webdataset.TarWriter(stream, **options) as writer,
        ):
            for sample in _read_tars([{"url": shard, **known}]):
                # Members one by one: the writer would sort them.
                for name in (name for name in sample if name not in ("__key__", "__url__")):
                    writer.write({"__key__": sample["__key__"], name: sample[name]})
    return written


def _local_path(url: str) -> Path | None:
    """Return the path of a file of this machine, as gopen opens it; None: another URL."""
    parts = urlparse(rewrite_url(url))
    if parts.scheme in ("", "file"):
        return Path(url2pathname(parts.path) if parts.scheme else rewrite_url(url))
    return None


@contextmanager
def _new_file(url: str) -> Iterator[str | BinaryIO]:
    """Yield what a ``TarWriter`` writes to; a file of this machine appears when it is whole.

    Raises:
        UsageError: the file is there already, with other bytes.
    """
    path = _local_path(url)
    if path is None or (path.exists() and not path.is_file()):  # a command or a device
        yield url
        return
    for left in left_behind(path.parent, escape(path.name)):  # by a killed copy
        left.unlink(missing_ok=True)
    with atomic_path(path) as temporary:
        with temporary.open("wb") as stream:
            yield stream
        if path.exists() and not cmp(path, temporary, shallow=False):
            raise UsageError(
                f"{path}: is there already, and is not the copy of this shard; move it away, or "
                "give another URL or --start"
            )


def _list_shards(urls: Urls) -> list[str]:
    if isinstance(urls, str):
        return list(webdataset.shardlists.expand_urls(urls))
    return [str(url) for url in ([urls] if isinstance(urls, Path) else urls)]


def _refuse_commands(urls: Iterable[str], pipe: bool) -> None:
    # As gopen parses it: " PIPE:..." runs a command, too.
    commands = [url for url in urls if urlparse(rewrite_url(url)).scheme == "pipe"]
    if commands and not pipe:
        raise UsageError(
            f"{masked(commands[0])}: runs a command; give pipe=True (--pipe) if you trust the "
            "author of the URL"
        )


def _split_at_last_dot(name: str) -> tuple[str | None, str]:
    """Key and suffix of a member; hidden files have no key, as in webdataset."""
    hidden = name.rpartition("/")[2].startswith(".")
    return (None, "") if hidden else SampleRules(last_dot=True).split(name)


def _read_tars(
    shards: Iterable[dict[str, str]],
    split: Callable[[str], tuple[str | None, str | None]] = base_plus_ext,
) -> Iterator[Sample]:
    """Yield the samples of shards; ``split`` gives the key and the suffix of a member."""
    try:
        with _masked_errors():
            yield from group_by_keys(tar_file_expander(_read_to_end(_open_shards(shards))), split)
    except tarfile.TarError as error:  # its arguments: "REASON @ STREAM", the stream, the URL
        reason, url = str(error.args[0]).partition(" @ ")[0], error.args[-1]
        raise InvalidData(f"{masked(url)}: {reason}; get the shard again") from None


def _open_shards(shards: Iterable[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """Open the URLs; of an object store, a copy of one shard at a time."""
    for shard in shards:
        if not is_object_store(shard["url"]):
            yield from url_opener([shard])
            continue
        folder, _, name = shard["url"].rpartition("/")
        with TemporaryDirectory(prefix="hgld-") as here:
            RemoteFolder(folder).download(name, Path(here, name))
            with Path(here, name).open("rb") as stream:
                yield {**shard, "stream": stream}


def _read_to_end(opened: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield opened shards; read on what tarfile leaves, and compare a SHA-256 if one is stated.

    Raises:
        InvalidData: it differs.
        OSError: the command of a URL failed; tarfile takes what it wrote for the whole shard if
            that ends with a sample.
    """
    for source in opened:
        stream = _HashedStream(source["stream"]) if "sha256" in source else source["stream"]
        yield {**source, "stream": stream}
        while stream.read(LARGE):
            pass
        source["stream"].close()  # waits for a command
        if "sha256" in source and stream.digest.hexdigest() != source["sha256"]:
            raise InvalidData(
                f"{masked(source['url'])}: is not the shard of manifest.json (SHA-256), and "
                "neither is a copy that a URL took; `hgld shards verify` names what was changed"
            )


class _HashedStream:
    """A stream whose bytes are hashed as they are read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.digest = stream, sha256()

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.digest.update(data)
        return data


@contextmanager
def _masked_errors() -> Iterator[None]:
    """Raise an error of webdataset's commands in one line; it quotes a URL with its signature."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of a file of this machine
            raise
        raise HgldError(masked(single_blanks(str(error.args[0])))) from None


Planned = tuple[int, list[Sample], list[Any]]  # step, samples and labels


@dataclass
class _Grouped:
    """Stage that groups the samples of the next epoch, and numbers the batches of all epochs."""

    number: Callable[[Sample], int]
    shape: tuple[int, int]
    window: int
    seed: int
    step: int = 0
    epoch: int = 0

    def __call__(self, samples: Iterable[Sample]) -> Iterator[Planned]:
        before, seed = self.step, (self.seed, self.epoch)  # each epoch has other draws
        self.epoch += 1
        found = _group(samples, shape=self.shape, label=self.number, window=self.window, seed=seed)
        for batch in found:
            yield self.step, batch, list(map(self.number, batch))
            self.step += 1
        if self.step == before:
            raise InvalidData(
                "the shards fill no batch: fewer than classes_per_batch classes have "
                "images_per_class samples; lower one of them"
            )


def _number_of(sample: Sample, label: Label) -> int:
    """Number of a sample's class."""
    found: Any = _class_of(sample, label)
    try:
        number = int(found)
        if not isinstance(found, str | bytes) and number != found:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise InvalidData(
            f"{_name_of(sample)}: its class is {found!r}; expected a number: give rows of the "
            "index (`hgld shards index`), which numbers classes, or a function that returns one"
        ) from None
    return number


class _Planned:
    """The shards of the next epoch in the plan's order, and a stage that assembles its batches."""

    def __init__(self, rows: pd.DataFrame, plan: BatchPlan, urls: Sequence[str]) -> None:
        self.rows, self.plan, self.epoch = rows, plan, -1
        self.locations = dict[str, str]()  # in the order of the shards' names, as the plan has them
        for name in rows["shard"].astype("category").cat.categories:
            plain, quoted = re.escape(name), re.escape(quote(name))
            whole = re.compile(rf"(^|[^\w.-])({plain}|{quoted})($|[^\w.-])")
            # "in" rules out most of them in a tenth of the time
            near = (url for url in urls if name in url or quote(name) in url)
            found = list(dict.fromkeys(filter(whole.search, near)))
            if not found:
                raise InvalidData(f"{name}: a shard of the rows is not among the {len(urls)} URLs")
            if len(found) > 1:
                raise InvalidData(
                    f"{name}: is at {masked(found[0])} and at {masked(found[1])}; give the URL of "
                    "the shard that the rows are of"
                )
            self.locations[name] = found[0]

    def shards(self) -> Iterator[dict[str, str]]:
        self.epoch += 1
        urls, (_, turns) = list(self.locations.values()), self.plan.shard_order(self.epoch)
        return iter([{"url": urls[shard]} for shard in np.argsort(turns).tolist()])

    def __call__(self, samples: Iterable[Sample]) -> Iterator[Planned]:
        steps, labels = self.plan.steps_of(self.epoch), labels_of(self.rows)
        planned = self.plan.rows(self.epoch)
        needed = set(planned.ravel().tolist())
        urls = self.rows["shard"].map(self.locations)
        numbers = dict[tuple[str, str], int]()
        others = defaultdict[tuple[str, str], list[int]](list)  # further rows of one photo, rare
        for number, place in enumerate(zip(urls, self.rows["key"], strict=True)):
            if numbers.setdefault(place, number) != number:
                others[place].append(number)
        more: dict[str, list[Any]] = {}
        if IMAGE_CRC32 in self.rows:
            more[CRC32] = self.rows[IMAGE_CRC32].tolist()
        if {*BOX} <= {*self.rows}:
            more[PART] = self.rows[list(BOX)].to_numpy(np.float64).tolist()
        held: dict[int, Sample] = {}
        coming = iter(samples)
        for step, wanted in zip(steps, planned.tolist(), strict=True):
            different = set(wanted)  # a small class may be repeated
            while not held.keys() >= different:
                sample = next(coming, None)
                if sample is None:
                    raise InvalidData(
                        f"the shards end before batch {step} is whole; index them again"
                    )
                place = sample["__url__"], sample["__key__"]
                for number in needed.intersection([numbers.get(place, -1), *others.get(place, ())]):
                    own = {name: column[number] for name, column in more.items()}
                    held[number] = {**sample, **own}
            yield step, [held[number] for number in wanted], list(labels[wanted])
            for number in different:
                del held[number]


@dataclass(frozen=True)
class _Load:
    """Stage that decodes and transforms a rank's part of each batch."""

    transform: Transform
    part: slice
    seed: int

    def __call__(self, planned: Iterable[Planned]) -> Iterator[Batch]:
        for step, samples, labels in planned:
            images = []
            with torch.random.fork_rng(devices=[]):
                for at, sample in enumerate(samples[self.part], self.part.start):
                    # Seeded per image as BatchLoader does, so that both have the same crops.
                    seed = step_seed(self.seed, step, f"augmentation {at}")
                    torch.default_generator.manual_seed(seed)
                    images.append(self.transform(self._image(sample)))
            keys = [sample["__key__"] for sample in samples[self.part]]
            yield Batch((stack_images(images), torch.as_tensor(np.array(labels[self.part])), keys))

    def _image(self, sample: Sample) -> Image.Image:
        names = (name for name in (*IMAGES, *sample) if name in sample)  # as the index takes them
        name = next((name for name in names if name.rpartition(".")[2].lower() in IMAGES), None)
        if name is None:
            raise InvalidData(f"{_name_of(sample)}: has no image")
        try:
            image = decode_rgb(sample[name])  # upright, as BatchLoader does
        except Undecodable as error:
            raise InvalidData(
                f"{_name_of(sample)}: the {name} is not decodable ({error}); get the shard again"
            ) from None
        require_intact(sample[name], sample.get(CRC32), partial(_name_of, sample))
        return cut_box(image, sample[PART], partial(_name_of, sample)) if PART in sample else image
