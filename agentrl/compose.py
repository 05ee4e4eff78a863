"""Config of a run: defaults (`agentrl/config.py`), group files (`configs/`), a file, overrides; later ones win.

Hydra chooses and merges the groups under a typed schema, then each value is set and checked on its own. Every error is a
`UsageError` of one line; every value of the result knows where it came from.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Any

from agentrl import keys, models, registry
from agentrl.config import Config
from agentrl.errors import UsageError
from agentrl.overrides import Choice, Value, read
from agentrl.validate import validate

CONFIG_MODULE = "agentrl.configs"
DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A run's config, and for each key where its value came from.

    >>> compose(["trainer=rloo", "seed=3"]).origins["trainer.advantage"]     # doctest: +SKIP
    'configs/trainer/rloo.yaml'
    """

    config: Config
    origins: Mapping[str, str] = field(default_factory=dict)
    """key -> default | configs/<group>/<option>.yaml | override: <as written> | <file>."""

    def chosen(self, group: str) -> tuple[str, ...]:
        """The options of a config group that some value came from: one, unless a run was gone on with under another."""
        folder = f"configs/{group}/"
        return tuple(sorted({Path(o).stem for o in self.origins.values() if o.startswith(folder)}))

    def changed(self) -> dict[str, str]:
        """The keys whose values are not their defaults: key -> "value  (origin)"."""
        table = keys.table()
        values = flatten(asdict(self.config))
        different = {key: value for key, value in values if key not in table or value != table[key].default}
        return {key: f"{value}  ({self.origins.get(key, DEFAULT)})" for key, value in different.items()}


def compose(
    overrides: Sequence[str] = (),
    *,
    file: Path | None = None,
    file_origins: Mapping[str, str] | None = None,
    complete: bool = False,
) -> Resolved:
    """Composes and checks a config. `file`: a YAML of keys that overrides group files; where it is `complete` (a run's
    config.yaml), the groups it came from are not looked at again, and `file_origins` says where its values came from.

    Raises UsageError for an unknown key, group or option, a value of the wrong type, and values that do not fit together.
    """
    options = groups()
    read_ones = [read(text, options) for text in overrides]
    choices = [one for one in read_ones if isinstance(one, Choice)]
    config, origins = _from_schema() if complete else _from_groups(choices, _replaced(read_ones))
    if file is not None:
        for key, value in flatten(_load(file)):
            _set(config, key, value, f"{file}: {key}")
            origins[key] = (file_origins or {}).get(key, str(file))
        _again(config, origins, choices)
    for one in read_ones:
        if isinstance(one, Value):
            for key, value in _leaves(one.key, one.value):
                _set(config, key, value, one.text)
                origins[key] = f"override: {one.text}"
    return Resolved(config=_typed(config), origins=dict(sorted(origins.items())))


def groups() -> dict[str, list[str]]:
    """The options of each config group, by the files in `configs/`."""
    root = resources.files(CONFIG_MODULE)
    return {
        group.name: sorted(f.name.removesuffix(".yaml") for f in group.iterdir() if f.name.endswith(".yaml"))
        for group in sorted(root.iterdir(), key=lambda item: item.name)
        if group.is_dir() and not group.name.startswith("_")
    }


def summary(group: str, option: str) -> str:
    """What the option is, in a sentence."""
    return keys.first_sentence(comment(group, option))


def comment(group: str, option: str) -> str:
    """What a group file says of itself in its head."""
    lines = [line for line in _text(f"{group}/{option}.yaml").splitlines() if not line.startswith("# @")]
    head = takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(line.lstrip("# ") for line in head)


def to_yaml(config: Config) -> str:
    """The whole config as YAML, sections in the order of `agentrl/config.py`."""
    import yaml

    return yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True)


def flatten(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every leaf; what lies in a free mapping is a leaf of its own, an empty mapping is none.

    >>> list(flatten({"env": {"id": "x", "args": {"max_turns": 3}}, "seed": 1}))
    [('env.id', 'x'), ('env.args.max_turns', 3), ('seed', 1)]
    """
    for name, value in data.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{key}.")
        else:
            yield key, value


def _from_schema() -> tuple[Any, dict[str, str]]:
    """(typed OmegaConf config, origins) with every key at its default."""
    from omegaconf import OmegaConf

    return OmegaConf.structured(Config), {key: DEFAULT for key, spec in keys.table().items() if not spec.is_mapping}


def _replaced(read_ones: Sequence[Choice | Value]) -> list[str]:
    """The groups whose default option says nothing of what was named instead: another environment's lengths or another
    model's learning rate must not be inherited silently."""
    named = {one.group if isinstance(one, Choice) else one.key for one in read_ones}
    return [group for group in ("env", "model") if f"{group}.id" in named and group not in named]


def _from_groups(choices: Sequence[Choice], replaced: Sequence[str]) -> tuple[Any, dict[str, str]]:
    """(typed OmegaConf config, origins) of the defaults list with these choices, without the `replaced` groups."""
    import hydra
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf, open_dict

    ConfigStore.instance().store(name="schema", node=Config)
    GlobalHydra.instance().clear()  # a caller's own Hydra app would make ours fail
    with hydra.initialize_config_module(config_module=CONFIG_MODULE, version_base="1.3"):
        config = hydra.compose(
            "config",
            [*(f"{c.group}={c.option}" for c in choices), *(f"~{group}" for group in replaced)],
            return_hydra_config=True,
        )
    chosen = {name: option for name, option in config.hydra.runtime.choices.items() if name in groups()}
    with open_dict(config):
        del config["hydra"]
    _, origins = _from_schema()
    for group, option in chosen.items():
        origins |= dict.fromkeys(_keys_of(group, option), f"configs/{group}/{option}.yaml")
    OmegaConf.set_struct(config, True)
    return config, origins


def _again(config: Any, origins: dict[str, str], choices: Sequence[Choice]) -> None:
    """A group named beside a file wins over the file: its values are set once more."""
    for choice in choices:
        for key, value in _values_of(choice.group, choice.option):
            _set(config, key, value, f"{choice.group}={choice.option}")
            origins[key] = f"configs/{choice.group}/{choice.option}.yaml"


def _keys_of(group: str, option: str) -> list[str]:
    return [key for key, _ in _values_of(group, option)]


@cache
def _values_of(group: str, option: str) -> tuple[tuple[str, Any], ...]:
    import yaml

    text = _text(f"{group}/{option}.yaml")
    prefix = "" if text.startswith("# @package _global_") else f"{group}."
    return tuple(flatten(yaml.safe_load(text) or {}, prefix))


def _text(path: str) -> str:
    return resources.files(CONFIG_MODULE).joinpath(path).read_text()


def _load(file: Path) -> dict[str, Any]:
    import yaml

    if not file.is_file():
        raise UsageError(f"there is no config file {file}")
    try:
        data = yaml.safe_load(file.read_text()) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"{file} is no valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{file} must hold keys and values, as in 'trainer: {{steps: 3}}'")
    return data


def _leaves(key: str, value: Any) -> list[tuple[str, Any]]:
    """A mapping given for a free mapping is set key by key, so that it adds to what is there."""
    spec = keys.table().get(key) or keys.owner(key)
    if isinstance(value, dict) and spec is not None and spec.is_mapping:
        return list(flatten(value, f"{key}."))
    return [(key, value)]


def _set(config: Any, key: str, value: Any, text: str) -> None:
    """Sets one key by its type. Raises UsageError that names key, value and the type that is expected."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    spec = keys.table().get(key)
    if spec is None and keys.owner(key) is None:
        raise UsageError(f"there is no key {key!r} ({text}); {keys.suggest(key)}")
    if spec is not None and spec.type is int and isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e3
    try:
        OmegaConf.update(config, key, copy.deepcopy(value), force_add=True)
    except OmegaConfBaseException:
        kind = spec.kind if spec else "a plain value"
        raise UsageError(f"{key} must be {kind}, got {'null' if value is None else repr(value)}") from None


def _typed(config: Any) -> Config:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        out = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        where = getattr(error, "full_key", None) or "config"
        raise UsageError(f"{where}: {str(error).splitlines()[0]}") from None
    assert isinstance(out, Config)
    validate(out)
    _make_absolute(out)
    return out


def _make_absolute(config: Config) -> None:
    """Paths of the config as they are from every folder: a run is gone on with from wherever. Files among the arguments of an
    environment's tasks are known by being there."""
    config.env.id = registry.absolute(config.env.id)
    config.env.tasks = {name: _file(value) for name, value in config.env.tasks.items()}
    if config.model.id not in models.names() and Path(config.model.id).expanduser().is_dir():
        config.model.id = str(Path(config.model.id).expanduser().absolute())


def _file(value: Any) -> Any:
    known = isinstance(value, str) and bool(Path(value).suffix) and Path(value).expanduser().is_file()
    return str(Path(value).expanduser().absolute()) if known else value
