"""Convert models from and to other formats, and compare both.

A Hugging Face folder or GGUF file becomes a model folder, or a model folder becomes a Hugging Face folder. Then both versions
read the same tokens and the same texts, each with its own tokenizer, and the differences of what they give are reported.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

import torch
from torch import Tensor

from regard.conversion import hf, task_config, verify
from regard.conversion.choose_tokenizer import choose_tokenizer, doubt_tokenizer
from regard.conversion.hf_export import export_model
from regard.conversion.hf_origin import Origin
from regard.conversion.text_proof import TextProof, compare_outputs, make_texts
from regard.decode import Search
from regard.engine.choose_engine import choose_engine, open_engine
from regard.engine.engine_plan import PLAN
from regard.engine.quantized_weights import is_quantized, pack_weights, quantize_weights
from regard.engine.shortlist import SHORTLIST, Shortlist, learn_shortlist
from regard.engine.torch_engine import TorchEngine
from regard.engine.write_plan import describe_folder, find_refusal
from regard.errors import DataError, SpecError
from regard.files.folder import WEIGHTS, write_folder
from regard.files.user_file import open_user_file
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.serialization.load import load_model
from regard.serialization.model_folder import find_model, identify_folder, sign_plan, write_model
from regard.spec import Plain
from regard.tasks.common.capabilities import Generates, require
from regard.tasks.common.seq2seq import TextPairs
from regard.tasks.common.task import Task

if TYPE_CHECKING:
    from regard.data.pairs import Pairs

Small = Literal["int8", "int4"]
Format = Literal["hf", "regard", "int8", "int4"]
Tell = Callable[[str], None]
MAX_SAMPLE, MAX_SAMPLE_BYTES = 100, 1 << 20
"""Lines and bytes of a sample that are read."""


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion."""

    model: Path
    """The folder that was written."""
    source: str
    """Origin that it was converted from."""
    kind: str
    """Kind that it is now."""
    parameters: int
    difference: float | None
    """The largest difference of the outputs to those of `transformers`; None if they were not compared."""
    proof: TextProof | None
    """Number of texts that give the same on both sides; None if they were not compared."""
    reason: str = ""
    """Reason why outputs or texts were not compared."""
    notes: tuple[str, ...] = ()
    """Notes on what may be wrong, or is different now."""

    def plain(self) -> dict[str, object]:
        """All fields, ready for JSON."""
        return {
            "model": str(self.model),
            "from": self.source,
            "as": self.kind,
            "parameters": self.parameters,
            "difference": self.difference,
            "texts": None if self.proof is None else vars(self.proof),
            "reason": self.reason,
            "notes": list(self.notes),
        }

    def render(self) -> str:
        """The result for people."""
        lines = [str(self.model), f"{self.source} as {self.kind}, {self.parameters:,} parameters"]
        if self.difference is not None:
            lines.append(f"largest difference to transformers: {self.difference:.2g}")
        if self.proof is not None:
            lines.append(self.proof.render())
        return "\n".join([*lines, *([self.reason] if self.reason else [])])


def convert(
    src: str | Path,
    dst: str | Path,
    *,
    to: Format | None = None,
    trust_pickle: bool = False,
    tokenizer: str | None = None,
    sample: str | Path | None = None,
    shortlist: Sequence[str | Path] = (),
    notify: Tell | None = None,
) -> Conversion:
    """Convert a Hugging Face folder, a GGUF file or a model folder, and write the result to `dst`.

    to            "hf" or "regard"; by default the format that `src` does not have. "int8" or "int4": a smaller model
                  folder, which the native engine runs faster; int4 is for large decoders
    trust_pickle  open pickled weights (.bin), as weights only, in a separate process
    tokenizer     another tokenizer than that of a Hugging Face folder: a tokenizer.json, a folder, or how text is split
                  into the tokens of its vocab.txt (`wordpiece`, `wordpiece-cased`, `words`, `chars`, `smiles`)
    sample        a file of texts, one per line, on which both versions are compared; by default made of the vocabulary
    shortlist     training data of an encoder-decoder that becomes int8 or int4, as `regard train` reads it: outputs are limited
                  to the target tokens that went with their source tokens there, which is faster
    notify        called with notes such as settings that were not converted
    """
    source, place = Path(src), Path(dst)
    if not source.exists():
        raise SpecError(f"there is no file or folder {src}")
    if source.is_file() and source.suffix != ".gguf":
        raise SpecError(
            f"{src} is one file; convert takes a folder with a config.json beside the weights, or a .gguf file"
        )
    own = identify_folder(source) is not None
    wanted = to or ("hf" if own else "regard")
    if wanted not in get_args(Format):
        raise SpecError(f"to should be hf, regard, int8 or int4, got {wanted!r}")
    if wanted in get_args(Small) and not own:
        raise SpecError(f"{src} is not a model folder; convert it to regard first, then to {wanted}")
    if wanted == "regard" and own:
        raise SpecError(f"{src} is a model folder already; convert it to hf instead")
    if tokenizer is not None and (own or source.is_file()):
        raise SpecError(f"{src} has its own tokenizer; leave out --tokenizer, which is for Hugging Face folders")
    if shortlist and wanted not in get_args(Small):
        raise SpecError(
            "a shortlist needs a folder in int8 or int4; set `to` to one of them, or leave out the shortlist"
        )
    job = _Job(source, place, _read_sample(sample), notify)
    if wanted == "int8" or wanted == "int4":
        return job.quantize(wanted, [str(path) for path in shortlist])
    if source.is_file():
        return job.from_gguf(wanted)
    return job.to_hf() if own else job.from_hf(wanted, trust_pickle, tokenizer)


class _Job:
    """One conversion: what it reads and writes, and what is said about it."""

    def __init__(self, source: Path, place: Path, texts: list[str], notify: Tell | None) -> None:
        self.source, self.place, self.texts, self._notify = source, place, texts, notify
        self.notes: list[str] = []

    def from_hf(self, wanted: str, trust: bool, named: str | None) -> Conversion:
        found = hf.read(self.source, trust=trust)
        if wanted == "hf":
            raise SpecError(f"{self.source} is a Hugging Face folder already; convert it to regard instead")
        chosen = None if named is None else choose_tokenizer(self.source, named)
        name, task, search = task_config.make_task(found, self.source, chosen)
        if left := task_config.find_unsupported(found, self.source, task.tokenizer):
            self._note(
                f"{self.source} generates with {', '.join(left)}, which Regard does not support: outputs may differ"
            )
        net = _build(found.spec, found.weights)
        what = f"{found.form.kind} ({found.use})"
        _export(self.place, name, task, search, found.spec, found.weights, what, Origin.read(self.source).files())
        self._doubt(task, None if named else self.source)
        if named is not None:  # transformers would take the tokenizer of the folder
            return self._report(what, name, net, *self._compare_exported(net, task))
        return self._report(what, name, net, *self._compare(found, net, self.source, task, net))

    def from_gguf(self, wanted: str) -> Conversion:
        from regard.conversion.gguf import read, read_origin, read_stored

        spec, weights, tokenizer = read(self.source)
        origin = read_origin(self.source)
        name, task, search = task_config.make_lm(spec, tokenizer)
        net = _build(spec, weights)
        if find_refusal(net) is None:  # the engine computes with the file's own blocks
            weights = read_stored(self.source)
        if wanted == "hf":
            write_folder(self.place, export_model(spec, net.state_dict(), task, search, origin).files)
        else:
            _export(self.place, name, task, search, spec, weights, self.source.name, origin.files())
        self._doubt(task, None)
        return self._report(self.source.name, name, net, *self._compare_exported(net, task))

    def to_hf(self) -> Conversion:
        folder = find_model(self.source)
        net, task, search = load_model(folder)
        made = export_model(net.spec, net.state_dict(), task, search, Origin.load(folder))
        write_folder(self.place, made.files)
        for note in made.notes:
            self._note(note)
        self._doubt(task, None)
        found = hf.read(self.place)
        name = f"{found.form.kind} ({found.config['architectures'][0]})"
        compared = self._compare(found, _build(made.spec, made.weights), self.place, task, net)
        return self._report(str(folder.path), name, net, *compared)

    def quantize(self, to: Small, pairs: Sequence[str]) -> Conversion:
        """Quantize the weights, add a shortlist if there are pairs, and compare the outputs of both on the sample."""
        folder = find_model(self.source)
        net, task, search = load_model(folder)
        weights = folder.tensors(WEIGHTS)
        if is_quantized(weights):
            raise SpecError(f"{self.source} has quantized weights already; convert the folder that it was made from")
        plan = describe_folder(net)
        quantized = quantize_weights(weights, plan, to)
        if not is_quantized(quantized) or PLAN not in folder:
            raise SpecError(f"{self.source} has no plan for the native engine, which {to} is for; save it again first")
        files = {**folder.files, WEIGHTS: pack_weights(quantized, plan)}
        files.pop(SHORTLIST, None)
        known = self._learn_shortlist(task, pairs, plan) if pairs else None
        if known is not None:
            files[SHORTLIST] = known.to_bytes()
        files[PLAN] = json.dumps(sign_plan(folder.json(PLAN), files), ensure_ascii=False).encode()
        write_folder(self.place, files)
        tokenizer = getattr(task, "source_tokenizer", task.tokenizer)
        texts = self.texts or ([] if tokenizer is None else make_texts(tokenizer))
        smaller = load_model(find_model(self.place))[0]
        chosen = choose_engine(smaller, precision=to)
        engine = open_engine(smaller, chosen, files[WEIGHTS], shortlist=known)
        proof = compare_outputs(require(task, Generates), TorchEngine(net), engine, texts, search)
        self._note(f"weights: {len(folder[WEIGHTS]):,} bytes became {len(files[WEIGHTS]):,}")
        return self._report(str(folder.path), to, net, None, proof)

    def _learn_shortlist(self, task: Task, files: Sequence[str], plan: Plain) -> Shortlist:
        if not isinstance(task, TextPairs) or plan.get("encoder") is None:
            raise SpecError(f"a shortlist is for models that translate texts, and {self.source} does not")
        found = task.encode(cast("list[Pairs]", task.read_test(task.settings, files)))
        known = learn_shortlist(found.source, found.target, int(plan["source_vocab"]), int(plan["vocab"]))
        self._note(
            f"shortlist: {len(known.ids) / len(known.starts):.0f} target tokens per source token, from {len(found):,} pairs"
        )
        return known

    def _note(self, text: str) -> None:
        self.notes.append(text)
        if self._notify is not None:
            self._notify(text)

    def _doubt(self, task: Task, folder: Path | None) -> None:
        """Say what speaks against the tokenizer of what is read; `folder` is where it was found, if nobody named it."""
        tokenizer = getattr(task, "source_tokenizer", task.tokenizer)
        for note in [] if tokenizer is None else doubt_tokenizer(tokenizer, folder, self.texts):
            self._note(note)

    def _compare_exported(self, net: Net, task: Task) -> tuple[float | None, TextProof | str]:
        """Compare like `_compare`, with the same model in a Hugging Face folder of ours."""
        with tempfile.TemporaryDirectory() as made:
            for file, data in export_model(net.spec, net.state_dict(), task, Search()).files.items():
                Path(made, file).write_bytes(data)
            return self._compare(hf.read(Path(made)), net, Path(made), task, net)

    def _compare(
        self, found: hf.HfModel, net: Net, folder: Path, task: Task, own: Net
    ) -> tuple[float | None, TextProof | str]:
        """The largest difference of the outputs, and the texts that give the same; or why they were not compared."""
        if not verify.is_available():
            return (
                None,
                "neither outputs nor texts were compared: transformers is not installed (pip install transformers)",
            )
        tokenizer = getattr(task, "source_tokenizer", task.tokenizer)
        read = self.texts or ([] if tokenizer is None else make_texts(tokenizer))
        difference, proof = verify.compare_all(found, net, folder, task, own, read)
        if isinstance(proof, TextProof) and proof.first:
            self._note(f"both versions do not give the same {proof.what}: {proof.first}")
        return difference, proof

    def _report(
        self, source: str, kind: str, net: Net, difference: float | None, compared: TextProof | str
    ) -> Conversion:
        count = sum(p.numel() for p in net.parameters())
        proof, reason = (compared, "") if isinstance(compared, TextProof) else (None, compared)
        return Conversion(self.place, source, kind, count, difference, proof, reason, tuple(self.notes))


def _read_sample(path: str | Path | None) -> list[str]:
    """The first lines of a file that have text."""
    if path is None:
        return []
    with open_user_file(path, what="the sample") as file:
        lines = file.read(MAX_SAMPLE_BYTES).decode("utf-8", errors="replace").split("\n")
    found = [line.rstrip("\r") for line in lines if line.strip()][:MAX_SAMPLE]
    if not found:
        raise DataError(f"the sample {path} has no text")
    return found


def _export(
    place: Path,
    name: str,
    task: Task,
    search: Search,
    spec: ModelSpec,
    weights: Mapping[str, Tensor],
    what: str,
    more: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model folder."""
    with torch.device("meta"):
        net = spec.build()
    card = f"# {place.name}\n\nConverted with Regard from {what}; its task is {name}.\n"
    write_model(place, task=task, name=name, net=net, search=search, weights=weights, card=card, more=more)


def _build(spec: ModelSpec, weights: Mapping[str, Tensor]) -> Net:
    return spec.build_with(weights).eval()
