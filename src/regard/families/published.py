"""How others publish a family: config keys and weights.

    config.json ──▶ arguments of the family's `spec` ──▶ ModelSpec ──▶ arguments ──▶ config.json

A `Key` is one argument: what they call it, and where a finished spec holds it. Since a spec is a value, whether a model of ours
*is* of some family needs no guess: read its arguments off the spec, and see whether they make the same spec again.
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
"""Their words for ours; of two for one, the first is written."""
TRAINING = {"dropout", "init", "recompute"}
"""Fields of a spec that do not matter once a model is trained."""


@dataclasses.dataclass(frozen=True)
class Key:
    """An argument of ours, the place of a spec that holds it, and what they call it (and assume where they are silent).

    Where they have one word for several of ours, all three are tuples.
    """

    ours: str | tuple[str, ...]
    at: str | tuple[str, ...]
    theirs: str
    usual: object = None
    words: Mapping[str, object] | Mapping[bool, object] | None = None
    """Their words for our values."""
    read: Callable[[Config], object] | None = None
    write: Callable[[Any], Settings] | None = None
    back: Callable[[Any], object] | None = None
    """From what the spec holds to the argument."""

    def arguments(self, config: Config) -> Settings:
        """What a config says."""
        return self._named(self._value(config))

    def found(self, spec: ModelSpec) -> Settings:
        """What a spec says."""
        if isinstance(self.at, tuple):
            return self._named(tuple(_at(spec, path) for path in self.at))
        value = _at(spec, self.at)
        return self._named(value if self.back is None else self.back(value))

    def setting(self, arguments: Settings) -> Settings:
        """What a config should say."""
        value = tuple(arguments[o] for o in self.ours) if isinstance(self.ours, tuple) else arguments[self.ours]
        if self.write is not None:
            return self.write(value)
        if self.words is None:
            return {self.theirs: value}
        words = [word for word, ours in self.words.items() if ours == value]
        if not words:
            raise SpecError(f"{self.theirs} has no word for {value!r}")
        return {self.theirs: words[0]}

    def _value(self, config: Config) -> object:
        if self.read is not None:
            return self.read(config)
        value = config.get(self.theirs)
        value = self.usual if value is None else value
        if self.words is None:
            return value
        for word, ours in self.words.items():
            if word == value:
                return ours
        raise SpecError(f"it should be one of {', '.join(map(str, self.words))}")

    def _named(self, value: object) -> Settings:
        if isinstance(self.ours, tuple):
            assert isinstance(value, tuple)
            return dict(zip(self.ours, value, strict=True))
        return {self.ours: value}


@dataclasses.dataclass(frozen=True)
class Use:
    """What one of their classes adds to the body: its head, and the task that it is for."""

    task: Task
    names: Rows = ()
    fixed: Mapping[str, object] = dataclasses.field(default_factory=dict)
    keys: tuple[Key, ...] = ()
    bare: bool = False
    """It is the body alone, whose weights go without the prefix."""
    settings: Settings = dataclasses.field(default_factory=dict)
    """Of the task."""


@dataclasses.dataclass(frozen=True)
class Form:
    """One `model_type` of theirs."""

    kind: str
    spec: Callable[..., ModelSpec]
    keys: tuple[Key, ...]
    names: Rows
    uses: Mapping[str, Use]
    """By the name of their class, and perhaps a word on it; the first is meant where a config names none."""
    prefix: str = ""
    """Of the body's weights; it may be absent."""
    fixed: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Arguments of ours that are always so."""
    only: Mapping[str, tuple[object, ...]] = dataclasses.field(default_factory=dict)
    """Settings of theirs, and the values we can follow; silence is one of them."""
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """What their config.json says beside."""
    seen: Callable[[Config, Iterable[str]], Config] | None = None
    """What the names of the weights say that the config does not."""

    def whole(self, config: Config, names: Iterable[str]) -> Config:
        """A config with what the names of the weights say beside."""
        return config if self.seen is None else self.seen(config, frozenset(names))

    def use(self, config: Config) -> str:
        """Which of their classes a config is of."""
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
        """The spec of a model with this config; everything in it that we cannot follow is in one error."""
        use, wrong = self.uses[self.use(config)], []
        for name, fine in self.only.items():
            if config.get(name) is not None and config[name] not in fine:
                wrong.append(f"{name}={config[name]!r} (only {' or '.join(map(repr, fine))})")
        arguments: Settings = {}
        for key in (*self.keys, *use.keys):
            try:
                arguments |= key.arguments(config)
            except (SpecError, TypeError, ValueError, AttributeError, KeyError) as error:
                wrong.append(f"{key.theirs}={config.get(key.theirs)!r} ({error})")
        if wrong:
            raise SpecError(f"a {self.kind} model of ours cannot have {', '.join(wrong)}")
        try:
            return self.spec(**{**arguments, **self.fixed, **use.fixed})
        except (TypeError, ValueError) as error:  # a text where a number should be
            raise SpecError(f"this config.json of a {self.kind} model makes no sense: {error}") from None

    def config(self, spec: ModelSpec, use: str) -> tuple[Settings, list[str]]:
        """The config.json of a model with this spec; or, where theirs is another model, every difference.

        A spec that has no such arguments at all is a SpecError.
        """
        it = self.uses[use]
        keys = (*self.keys, *it.keys)
        try:
            arguments = {name: value for key in keys for name, value in key.found(spec).items()}
            same = self.spec(**{**arguments, **self.fixed, **it.fixed})
        except (AttributeError, TypeError, SpecError) as error:
            raise SpecError(f"it is no {self.kind} model: {error}") from None
        if wrong := differences(_bones(same.plain()), _bones(spec.plain())):
            return {}, wrong
        out: Settings = {"model_type": self.kind, "architectures": [use.split()[0]], **self.facts}
        for key in keys:
            out = key.setting(arguments) | out
        return out, []


def differences(theirs: object, ours: object, path: str = "") -> list[str]:
    """Where two plain values differ: what it would have to be, and what it is."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = dict.fromkeys([*theirs, *ours])
        return [d for k in keys for d in differences(theirs.get(k), ours.get(k), f"{path}.{k}" if path else k)]
    return [] if theirs == ours else [f"{path} should be {theirs!r}, is {ours!r}"]


def _bones(plain: object) -> object:
    """A spec without what matters in training only."""
    if isinstance(plain, dict):
        return {key: _bones(value) for key, value in plain.items() if key not in TRAINING}
    return [_bones(value) for value in plain] if isinstance(plain, list) else plain


def _at(spec: object, path: str) -> object:
    """What a spec holds at a dotted path; None where something on the way is not there."""
    for name in path.split("."):
        spec = None if spec is None else getattr(spec, name)
    return spec


def _count(config: Config) -> int:
    return int(config.get("num_labels") or len(config.get("id2label") or ()) or 2)


def _labels(count: int) -> Settings:
    names = {str(i): f"LABEL_{i}" for i in range(count)}
    return {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}


CLASSES = Key("classes", "head.count", "num_labels", read=_count, write=_labels)
"""How many classes a classifier tells apart."""
