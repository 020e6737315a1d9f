"""Every regular expression of the package, found by reading its syntax trees.

A pattern that is put together when the program runs stands in `RUN_TIME` with an example of what it becomes.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import regard
from regard.conversion.gguf_tokenizer import _CUTS
from regard.families.weight_map import _ENDS
from regard.tasks.common.fill_mask import MARK
from tests.laws.backtracking import Mode

PACKAGE = Path(regard.__file__).parent
MODES: dict[str, Mode] = {
    **dict.fromkeys(("search", "finditer", "findall", "sub", "subn", "split"), "search"),
    "match": "match",
    "fullmatch": "fullmatch",
}
NAMES = "|".join(map(re.escape, ("<s>", "</s>", "<unk>", "[MASK]", "<extra_id_0>", "<<<")))
RUN_TIME: dict[str, list[list[str]]] = {
    "text/tokenizer.py": [[NAMES]],
    "text/tokenizer_specs.py": [[rf"(?<![^ ])<(?=({NAMES})(?![^ ]))"]],
    "text/importers.py": [
        [r"\A[ \r\n]+|(?<![ \r\n])[ \r\n]+\z", r"\A[ ]+|(?<![ ])[ ]+\z"],
        [r"<(?=s>)|<(?=unk>)|\[(?=MASK\])"],
    ],
    "tasks/common/fill_mask.py": [[MARK.pattern]],
    "serve/chat_template.py": [["([\ue000\ue001\ue002])"]],
    "families/weight_map.py": [[r"encoder\.blocks\.(\d+)\.mixer\.(\d+)\.q" + _ENDS]],
    "conversion/gguf_tokenizer.py": [[pattern for patterns in _CUTS.values() for pattern in patterns]],
}
"""Patterns that are put together when the program runs, by file: what each such call in it makes, in their order."""
BOUNDED = {
    "conversion/gguf_tokenizer.py": "published; what `\\s*` reads in vain, `\\s+` matches; at most MAX_PIECE letters"
}
"""Modules whose patterns the law cannot prove, and why they may stay: what bounds the text that they meet."""
ONIGURUMA = {r"\p{L}": r"[^\W\d_]", r"\p{M}": "\u0301", r"\p{N}": r"\d", r"\z": r"\Z"}
"""What the patterns of the `tokenizers` library write otherwise; in a set, a letter or two stand for a property."""


@dataclass(frozen=True)
class Pattern:
    """A pattern, its flags, how it is used and where it stands."""

    text: str
    flags: int
    modes: tuple[Mode, ...]
    place: str
    theirs: str = ""
    """The pattern as the `tokenizers` library reads it, if it does."""

    @property
    def file(self) -> str:
        return self.place.partition(":")[0]


def find_patterns(package: Path = PACKAGE) -> list[Pattern]:
    """Every pattern that a module compiles, or hands to a function of `re` or to the `tokenizers` library."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}
    uses = _find_uses(trees.values())
    found = []
    for path, tree in trees.items():
        made = iter(RUN_TIME.get(path.relative_to(package).as_posix(), ()))
        for call, name in _calls(tree):
            place = f"{path.relative_to(package).as_posix()}:{call.lineno}"
            text = _read_text(call.args[0], tree)
            texts = next(made, None) if text is None else [text]
            assert texts is not None, f"{place}: a pattern made at run time; add an example to RUN_TIME"
            how = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            modes = (MODES[how],) if how in MODES else uses.get(name) or tuple(sorted({*MODES.values()}))
            for text in texts:
                if isinstance(call.func, ast.Name):  # Regex: the library searches
                    found.append(Pattern(_translate(text), 0, ("search",), place, theirs=text))
                else:
                    found.append(Pattern(text, _read_flags(call), modes, place))
        assert not [*made], f"{path}: RUN_TIME has more examples than there are patterns made at run time"
    return found


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Calls with a pattern, and the name that a compiled one gets."""
    names: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            pairs = _pair(target, node.value)
            for goal, value in pairs:
                names |= {id(part): ast.unparse(goal).rpartition(".")[2] for part in ast.walk(value)}
        elif isinstance(node, ast.FunctionDef) and any("property" in ast.unparse(d) for d in node.decorator_list):
            names |= {id(part): node.name for part in ast.walk(node)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    for node in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        func = node.func
        of_re = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "re"
        if (of_re and func.attr in {"compile", *MODES}) or (isinstance(func, ast.Name) and func.id == "Regex"):
            yield node, names.get(id(node), "")


def _pair(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The names of an assignment with their values: `A, B = re.compile(…), re.compile(…)`."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [*zip(target.elts, value.elts, strict=True)]
    return [(target, value)]


def _find_uses(trees: Iterator[ast.Module]) -> dict[str, tuple[Mode, ...]]:
    """How compiled patterns are used: names with the methods called on them, in any module."""
    uses = defaultdict(set)
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in MODES:
                value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
                uses[ast.unparse(value).rpartition(".")[2]].add(MODES[node.attr])
    return {name: tuple(sorted(modes)) for name, modes in uses.items()}


def _read_text(node: ast.expr, tree: ast.Module) -> str | None:
    """A text of the program, also one that is put together from names of constants in its module."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        values = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == node.id]
        return _read_text(values[0], tree) if values else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _join([node.left, node.right], tree)
    if isinstance(node, ast.FormattedValue):
        return _read_text(node.value, tree)
    return _join(node.values, tree) if isinstance(node, ast.JoinedStr) else None


def _join(parts: list[ast.expr], tree: ast.Module) -> str | None:
    texts = [_read_text(part, tree) for part in parts]
    return None if None in texts else "".join(map(str, texts))


def _read_flags(call: ast.Call) -> int:
    given = [*call.args[1:], *(word.value for word in call.keywords if word.arg == "flags")]
    names = {n.attr for node in given for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    return sum(flag.value for flag in {re.RegexFlag[name] for name in names if name in re.RegexFlag.__members__})


def _translate(text: str) -> str:
    """A pattern of Oniguruma as one of Python."""
    text = text.replace(r"\p{L}\p{M}\p{N}", r"\w")
    for theirs, ours in ONIGURUMA.items():
        text = text.replace(theirs, ours)
    return text
