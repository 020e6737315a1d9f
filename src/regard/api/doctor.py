"""Check the installation and say what this machine supports.

`regard doctor` also says what the `auto` settings therefore stand for.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import platform
import sys

from regard.engine.compile_library import LIBRARY, CompileError, compile_library, is_current
from regard.engine.native_library import find_fault, list_kernels
from regard.errors import name_extra
from regard.machine import free_memory, keep_large_blocks, machine, precision

NEEDED = (
    "torch",
    "numpy",
    "safetensors",
    "tokenizers",
    "pydantic",
    "ruamel.yaml",
    "typer",
    "rich",
    "sacrebleu",
    "jiwer",
    "babel",
)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
EXTRAS = {
    "sentencepiece": "sentencepiece", "tensorboard": "tensorboard", "plots": "matplotlib", "ray": "ray",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    healthy: bool
    detail: str


@dataclasses.dataclass(frozen=True)
class Checkup:
    """The results of all checks."""

    findings: list[Finding]

    @property
    def healthy(self) -> bool:
        return all(finding.healthy for finding in self.findings)

    def plain(self) -> list[dict[str, object]]:
        """All results, ready for JSON."""
        return [dataclasses.asdict(finding) for finding in self.findings]

    def render(self) -> str:
        """The results for people, one per line."""
        return "\n".join(f"{'ok ' if f.healthy else 'BAD'} {f.what:<20} {f.detail}" for f in self.findings)

    def __str__(self) -> str:
        return self.render()


def doctor(*, build: bool = False) -> Checkup:
    """Check the installation, and say what this machine supports; `build` compiles the native engine first."""
    return Checkup([*([_build_engine()] if build else []), *examine()])


def _build_engine() -> Finding:
    """Compile the native engine, unless it is up to date."""
    try:
        path = LIBRARY if is_current() else compile_library()
    except (CompileError, OSError) as error:
        return Finding("build", False, f"the native engine could not be compiled: {error}")
    return Finding("build", True, f"compiled {path.name}")


def _native_engine() -> Finding:
    """Check that the native engine is there, and name its instructions. Without it everything runs on torch."""
    if fault := find_fault():
        return Finding("native engine", True, f"not used: {fault}")
    here = [name for name, supported in list_kernels().items() if supported]
    stale = "" if is_current() else "; compiled from other sources: run `regard doctor --build`"
    return Finding("native engine", True, f"compiled; this processor uses {here[0]}{stale}")


def examine() -> list[Finding]:
    """Run every check; never raises."""
    out = [Finding("python", sys.version_info >= (3, 11), platform.python_version())]
    for name in NEEDED:
        try:
            importlib.import_module(name)
            out.append(Finding(name, True, _version(name)))
        except (ImportError, OSError) as error:  # OSError: a library that torch is linked with
            out.append(Finding(name, False, f"cannot be imported: {error}; pip install '{name}'"))
    for extra, name in EXTRAS.items():
        there = importlib.util.find_spec(name) is not None
        out.append(Finding(f"extra {extra}", True, "installed" if there else f"not installed; {name_extra(extra)}"))
    return [*out, *_machine(), _native_engine(), _computes()] if all(finding.healthy for finding in out) else out


def _machine() -> list[Finding]:
    import torch

    here = machine()
    matrices = "native" if here.bf16 else "not native: float32 is faster here"
    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kept = keep_large_blocks()
    auto = precision("auto", device)
    auto = "the faster one of a few steps of each" if auto == "auto" else auto
    return [
        Finding("torch build", True, _torch_build()),
        Finding("processor", True, f"{here.processor}, {here.cores} cores, {here.memory / 2**30:.1f} GiB"),
        Finding("bfloat16", True, f"{matrices}; train.precision auto is {auto}"),
        Finding("threads", True, f"torch uses {torch.get_num_threads()}; the rows of a batch are divided among them"),
        Finding("free memory", True, f"{free_memory() / 2**30:.1f} GiB; train.batch_tokens auto fits batches into it"),
        Finding("device", True, f"auto is {device}" + ("" if device == "cpu" else " (only the CPU is tested)")),
        Finding("allocator", True, "keeps large blocks while training" if kept else "the system's default"),
    ]


def _torch_build() -> str:
    """Describe what the installed torch was built for; a build with CUDA is wasted on a machine without a GPU."""
    import torch

    if cuda := torch.version.cuda:
        unused = "" if torch.cuda.is_available() else f"; no NVIDIA GPU here: the build from {CPU_INDEX} is smaller"
        return f"CUDA {cuda} ({torch.__version__}){unused}"
    kind = f"ROCm {torch.version.hip}" if torch.version.hip else "CPU"
    return f"{kind} ({torch.__version__})"


def _computes() -> Finding:
    """Run a tiny model forward and backward."""
    import torch

    from regard.families import transformer
    from regard.nn.core.coords import Coords

    try:
        net = transformer.spec(width=8, depth=1, heads=2, vocab=5, dropout=0.0).build(seed=0)
        ids, at = torch.tensor([[1, 2, 3]]), Coords.span(3)
        loss, _ = net.loss(net(ids, at, (ids, at)), ids)
        loss.backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        return Finding("a small model", False, f"cannot run: {error}")
    whole = all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in net.parameters())
    return Finding(
        "a small model", whole, "runs forward and backward" if whole else "gives gradients that are not finite"
    )


def _version(name: str) -> str:
    package = {"babel": "Babel"}.get(name, name)
    return importlib.metadata.version(package)
