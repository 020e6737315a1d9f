"""Published forms of a family: config keys and weights.

    config.json ──▶ arguments of the family's `spec` ──▶ ModelSpec ──▶ arguments ──▶ config.json

A `Key` is one argument: its name in their config, and its place in a spec. A model of ours belongs to a family if the arguments
read from its spec build the same spec again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from regard.errors import CheckpointError, SpecError, UnknownName
from regard.families.named_sizes import Settings
from regard.families.weight_map import Rows
from regard.model.model_spec import ModelSpec

Config = Mapping[str, Any]
Task = Literal["lm", "translate", "mlm", "classify", "tag", "embed", "image"]

ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu",
}  # fmt: skip
"""Their names for our activations; if two mean the same, the first is written."""
TRAINING = {"dropout", "init", "recompute"}
"""Fields of a spec that matter only in training."""


@dataclasses.dataclass(frozen=True)
class Key:
    """An argument of ours, its dotted path in a spec, and its name and default in their config.

    If one key of theirs sets several arguments, `ours` and `at` are tuples.
    """

    ours: str | tuple[str, ...]
    at: str | tuple[str, ...]
    theirs: str
    default: object = None
    words: Mapping[str, object] | Mapping[bool, object] | None = None
    """Their values, mapped to ours."""
    read: Callable[[Config], object] | None = None
    write: Callable[[Any], Settings] | None = None
    back: Callable[[Any], object] | None = None
    """Converts the spec's value to the argument."""

    def read_config(self, config: Config) -> Settings:
        """Read the argument from a config."""
        return self._by_name(self._value(config))

    def read_spec(self, spec: ModelSpec) -> Settings:
        """Read the argument from a spec."""
        if isinstance(self.at, tuple):
            return self._by_name(tuple(_get(spec, path) for path in self.at))
        value = _get(spec, self.at)
        return self._by_name(value if self.back is None else self.back(value))

    def write_config(self, arguments: Settings) -> Settings:
        """Return the config entries for the argument."""
        value = tuple(arguments[o] for o in self.ours) if isinstance(self.ours, tuple) else arguments[self.ours]
        if self.write is not None:
            return self.write(value)
        if self.words is None:
            return {self.theirs: value}
        words = [word for word, ours in self.words.items() if ours == value]
        if not words:
            raise SpecError(f"{self.theirs} has no value for {value!r}")
        return {self.theirs: words[0]}

    def _value(self, config: Config) -> object:
        if self.read is not None:
            return self.read(config)
        value = config.get(self.theirs)
        value = self.default if value is None else value
        if self.words is None:
            return value
        for word, ours in self.words.items():
            if word == value:
                return ours
        raise SpecError(f"it should be one of {', '.join(map(str, self.words))}")

    def _by_name(self, value: object) -> Settings:
        if isinstance(self.ours, tuple):
            assert isinstance(value, tuple)
            return dict(zip(self.ours, value, strict=True))
        return {self.ours: value}


@dataclasses.dataclass(frozen=True)
class Use:
    """Addition of one of their classes to the body: a head, for a task."""

    task: Task
    names: Rows = ()
    fixed: Mapping[str, object] = dataclasses.field(default_factory=dict)
    keys: tuple[Key, ...] = ()
    bare: bool = False
    """The class is the body alone; its weights have no prefix."""
    settings: Settings = dataclasses.field(default_factory=dict)
    """Settings of the task."""


@dataclasses.dataclass(frozen=True)
class Form:
    """One `model_type`: how other libraries publish a family."""

    kind: str
    spec: Callable[..., ModelSpec]
    keys: tuple[Key, ...]
    names: Rows
    uses: Mapping[str, Use]
    """Uses by class name, perhaps with a remark; the first is the default."""
    prefix: str = ""
    """Prefix of the body's weights; files may omit it."""
    fixed: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Arguments of ours with a fixed value."""
    only: Mapping[str, tuple[object, ...]] = dataclasses.field(default_factory=dict)
    """Settings of theirs and the values that we support; a missing setting is always supported."""
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Further entries of their config.json."""
    infer: Callable[[Config, Iterable[str]], Config] | None = None
    """Completes a config with what only the names of the weights tell."""

    def complete(self, config: Config, names: Iterable[str]) -> Config:
        """Add to a config what only the names of the weights tell."""
        return config if self.infer is None else self.infer(config, frozenset(names))

    def use(self, config: Config) -> str:
        """Return which of their classes a config describes."""
        named = config.get("architectures") or [next(iter(self.uses))]
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise CheckpointError(f"architectures should be a list of names, got {named!r}")
        for name in named:
            if name in self.uses:
                return str(name)
        raise UnknownName(f"{self.kind} model", ", ".join(named), self.uses)

    def rows(self, use: str) -> Rows:
        return (*self.uses[use].names, *self.names)

    def build(self, config: Config) -> ModelSpec:
        """Build the spec for a config; one error lists every setting that is not supported."""
        use, wrong = self.uses[self.use(config)], []
        for name, fine in self.only.items():
            if config.get(name) is not None and config[name] not in fine:
                wrong.append(f"{name}={config[name]!r} (only {' or '.join(map(repr, fine))})")
        arguments: Settings = {}
        for key in (*self.keys, *use.keys):
            try:
                arguments |= key.read_config(config)
            except (SpecError, TypeError, ValueError, AttributeError, KeyError) as error:
                wrong.append(f"{key.theirs}={config.get(key.theirs)!r} ({error})")
        if wrong:
            raise SpecError(f"these settings of a {self.kind} model are not supported: {', '.join(wrong)}")
        try:
            return self.spec(**{**arguments, **self.fixed, **use.fixed})
        except (TypeError, ValueError) as error:  # for example text instead of a number
            raise SpecError(f"this config.json of a {self.kind} model is invalid: {error}") from None

    def config(self, spec: ModelSpec, use: str) -> tuple[Settings, list[str]]:
        """Return the config.json for a spec; if their model differs, return every difference instead.

        Raises SpecError if the spec does not have these arguments at all.
        """
        it = self.uses[use]
        keys = (*self.keys, *it.keys)
        try:
            arguments = {name: value for key in keys for name, value in key.read_spec(spec).items()}
            same = self.spec(**{**arguments, **self.fixed, **it.fixed})
        except (AttributeError, TypeError, SpecError) as error:
            raise SpecError(f"not a {self.kind} model: {error}") from None
        if wrong := differences(_drop_training(same.plain()), _drop_training(spec.plain())):
            return {}, wrong
        out: Settings = {"model_type": self.kind, "architectures": [use.split()[0]], **self.facts}
        for key in keys:
            out = key.write_config(arguments) | out
        return out, []


def differences(theirs: object, ours: object, path: str = "") -> list[str]:
    """List where two plain values differ: the required value and the actual one."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = dict.fromkeys([*theirs, *ours])
        return [d for k in keys for d in differences(theirs.get(k), ours.get(k), f"{path}.{k}" if path else k)]
    return [] if theirs == ours else [f"{path} should be {_name(theirs)}, is {_name(ours)}"]


def _name(value: object) -> str:
    """A value in a message: a part is its kind."""
    if isinstance(value, dict):
        return str(value.get("kind", "a mapping"))
    return f"a list of {len(value)}" if isinstance(value, list) else repr(value)


def _drop_training(plain: object) -> object:
    """Remove the fields that matter only in training."""
    if isinstance(plain, dict):
        return {key: _drop_training(value) for key, value in plain.items() if key not in TRAINING}
    return [_drop_training(value) for value in plain] if isinstance(plain, list) else plain


def _get(spec: object, path: str) -> object:
    """Return the value at a dotted path of a spec; None if a part on the way is None."""
    for name in path.split("."):
        spec = None if spec is None else getattr(spec, name)
    return spec


def _count(config: Config) -> int:
    return int(config.get("num_labels") or len(config.get("id2label") or ()) or 2)


def _labels(count: int) -> Settings:
    names = {str(i): f"LABEL_{i}" for i in range(count)}
    return {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}


CLASSES = Key("classes", "head.count", "num_labels", read=_count, write=_labels)
"""The number of classes of a classifier."""
