"""Special tokens around texts, such as `[CLS] a [SEP]`.

BERT reads `[CLS] a [SEP] b [SEP]`, T5 `a </s>`, GPT-2 no special tokens. Imported tokenizers keep their own spellings; the
special tokens of the template in the file also map our names to theirs: `regard <pad>` is the token `[PAD]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tokenizers import processors

from regard.errors import DataError

_OURS = "regard "
_A, _B = "$A", "$B"
_Part = tuple[str, int]  # a text or the spelling of a special token, and its segment


@dataclass(frozen=True)
class Template:
    """The order of texts and special tokens, for one text and for two; `ids` maps special tokens to ids."""

    single: tuple[_Part, ...]
    pair: tuple[_Part, ...]
    ids: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(
        cls,
        before: Sequence[str],
        after: Sequence[str],
        ids: Mapping[str, int],
        *,
        between: Sequence[str] = (),
        segment: int = 1,
    ) -> Self:
        """Build from the tokens before and after a text; a second text has `between` before it and its own `segment`."""
        one = tuple((name, 0) for name in (*before, _A, *after))
        two = tuple((name, segment) for name in (*between, _B, *after))
        return cls(one, one + two, {name: (ids[name],) for name in (*before, *after, *between)})

    @classmethod
    def bert(cls, first: str, last: str, ids: Mapping[str, int]) -> Self:
        """Build BERT's template: a first token, the text and a last token; then a second text and another last token."""
        return cls.of([first], [last], ids)

    @classmethod
    def read(cls, post: Mapping[str, Any] | None) -> Self | None:
        """Read the `post_processor` of a tokenizer file; None if there is none."""
        steps = [step for step in _flatten(post) if step["type"] != "ByteLevel"]  # only changes offsets
        if not steps:
            return cls.of((), (), {}) if post else None
        kind = steps[0]["type"]
        if len(steps) > 1 or kind not in ("TemplateProcessing", "BertProcessing", "RobertaProcessing"):
            raise DataError(f"cannot use a tokenizer with the post-processor {', '.join(s['type'] for s in steps)}")
        if kind == "TemplateProcessing":
            table = {k: tuple(v["ids"]) for k, v in steps[0]["special_tokens"].items() if not k.startswith(_OURS)}
            single, pair = (tuple(map(_read_part, steps[0][key])) for key in ("single", "pair"))
            if [[n for n, _ in side if n in (_A, _B)] for side in (single, pair)] not in (
                [[_A], [_A, _B]],
                [[_A], [_B, _A]],
            ):
                raise DataError("cannot use a tokenizer whose template omits or repeats a text")
            return cls(single, pair, table)
        (first, i), (last, j) = steps[0]["cls"], steps[0]["sep"]
        if kind == "BertProcessing":
            return cls.bert(first, last, {first: i, last: j})
        return cls.of([first], [last], {first: i, last: j}, between=[last], segment=0)

    @property
    def opening(self) -> list[int]:
        """The ids before a single text."""
        names = [name for name, _ in self.single]
        return [i for name in names[: names.index(_A)] for i in self.ids[name]]

    @property
    def closing(self) -> list[int]:
        """The ids after a single text."""
        names = [name for name, _ in self.single]
        return [i for name in names[names.index(_A) + 1 :] for i in self.ids[name]]

    @property
    def segments(self) -> bool:
        """True if the second text has its own segment."""
        return any(segment for _, segment in self.pair)

    def fill(self, first: Sequence[int], second: Sequence[int] | None) -> tuple[list[int], list[int]]:
        """Return the ids of one text or two with all special tokens, and the segment of each id."""
        texts, ids, segments = {_A: first, _B: second or ()}, list[int](), list[int]()
        for name, segment in self.single if second is None else self.pair:
            new = texts[name] if name in texts else self.ids[name]
            ids += new
            segments += [segment] * len(new)
        return ids, segments

    def to_post_processor(self, names: Mapping[str, tuple[str, int]]) -> processors.PostProcessor:
        """Convert to the library's post-processor; `names` maps our names of tokens to their spelling and id."""
        table = [{"id": _label(name), "ids": [*ids], "tokens": [name] * len(ids)} for name, ids in self.ids.items()]
        table += [{"id": _OURS + ours, "ids": [i], "tokens": [theirs]} for ours, (theirs, i) in names.items()]
        return processors.TemplateProcessing(
            single=[f"{_label(name)}:{segment}" for name, segment in self.single],
            pair=[f"{_label(name)}:{segment}" for name, segment in self.pair],
            special_tokens=table,
        )


def read_names(post: Mapping[str, Any] | None) -> dict[str, int]:
    """Read the tokens for which we have another name than the file: our name and the id."""
    tables = (step["special_tokens"] for step in _flatten(post) if step["type"] == "TemplateProcessing")
    return {
        name.removeprefix(_OURS): entry["ids"][0]
        for table in tables
        for name, entry in table.items()
        if name.startswith(_OURS) and len(entry["ids"]) == 1
    }


def _flatten(post: Mapping[str, Any] | None) -> Iterable[Mapping[str, Any]]:
    if post is None:
        return []
    return [s for step in post["processors"] for s in _flatten(step)] if post["type"] == "Sequence" else [post]


def _read_part(part: Mapping[str, Any]) -> _Part:
    ((kind, said),) = part.items()
    return ("$" if kind == "Sequence" else "") + said["id"], said["type_id"]


def _label(name: str) -> str:
    """Escape a name for the library's templates, in which `:` and `$` are syntax."""
    return name if name in (_A, _B) else name.replace(":", "\uff1a").replace("$", "\uff04")
