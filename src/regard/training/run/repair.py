"""Repair a run folder: make what is damaged again.

Everything that a run needs is there twice, or follows from something that is:

    run.json, recipe.yaml   copies are in every checkpoint
    vocabulary/             copies are in every checkpoint and in best/ and final/
    snapshots/              the checkpoint of the same step has these weights
    best/                   the checkpoint of its step has them, or its snapshot, or final/
    final/                  follows from best/ or snapshots/; it is written again at the end of `regard train`
    checkpoints/            an older one is used, and the steps after it are repeated
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from regard.errors import CheckpointError
from regard.files.folder import find_fault, read_folder, recover
from regard.files.storage import explain_errors, write_file
from regard.nn.layers import lora
from regard.serialization.load import load_model
from regard.serialization.model_folder import BEST, CHECKPOINTS, FACTS, FINAL, LOG, RECIPE, REPORT, VOCABULARY
from regard.training.optimizer import trained_tensors
from regard.training.run.artifacts import Artifacts
from regard.training.run.checkpoint import Checkpoints
from regard.training.run.resume import find_done_event
from regard.training.run.run_folder import find_run_fault, has_begun, read_facts
from regard.training.trainer import Trainer


def clean_up(folder: Path) -> None:
    """Undo or finish writes that a crash interrupted."""
    with explain_errors("clean up", folder):
        for name in (FACTS, RECIPE, LOG, REPORT):
            (folder / f".{name}.partial").unlink(missing_ok=True)
        for name in (VOCABULARY, BEST, FINAL):
            recover(folder / name)


def repair_description(folder: Path) -> list[str]:
    """Write run.json and recipe.yaml again from a checkpoint if one of them is damaged; returns messages."""
    fault = find_run_fault(folder) if has_begun(folder) else None
    found = None if fault is None else Checkpoints(folder / CHECKPOINTS).read_copies()
    if found is None:
        return []  # nothing is wrong, or whoever opens the run reports it
    source, copies = found
    for name in (FACTS, RECIPE):
        path, data = folder / name, copies[name]
        with explain_errors(f"write {name}", folder):
            ours = name == FACTS and read_facts(folder)  # a kill came before the recipe that it describes was written
            if not ours and path.is_file() and path.stat().st_size and path.read_bytes() != data:
                path.replace(path.with_name(f"{name}.corrupt"))  # somebody may have edited it
        write_file(path, data)
    return [f"{fault}; {FACTS} and {RECIPE} were written again from {source}"]


def copy_description(folder: Path, vocabulary: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files that every checkpoint has a copy of."""
    own = {f"{VOCABULARY}.{name}": data for name, data in vocabulary.items()}
    return {name: (folder / name).read_bytes() for name in (FACTS, RECIPE)} | own


def find_vocabulary(folder: Path) -> tuple[Path, Mapping[str, bytes]] | None:
    """The files of a vocabulary as a checkpoint or a model of this run has them, and where they are from."""
    if found := Checkpoints(folder / CHECKPOINTS).read_copies():
        source, copies = found
        return source, {name.removeprefix(f"{VOCABULARY}."): copies[name] for name in copies}
    for source in (folder / BEST, folder / FINAL):
        if source.exists() and find_fault(source) is None:
            return source, read_folder(source).files
    return None


def restore_models(artifacts: Artifacts, *, done: bool) -> tuple[list[str], list[str]]:
    """Write damaged snapshots and a damaged best model again; returns messages, and what cannot be made again.

    `done` says that the final model was written for the state of the trainer.
    """
    trainer, messages, lost = artifacts.trainer, list[str](), list[str]()
    state, learned = trainer.state, {name for name, p in trainer.net.named_parameters() if p.requires_grad}
    for kept in list(state.snapshots):
        if fault := trainer.snapshots.find_fault(kept[0]):
            if (weights := _weights_of(trainer, kept[0])) is None:
                lost.append(fault)
                state.snapshots.remove(kept)
                continue
            trainer.snapshots.add(kept[0], {name: t for name, t in weights.items() if name in learned})
            messages.append(f"{fault}; written again from the checkpoint of step {kept[0]}")
    best = artifacts.folder / BEST
    if state.best is not None and (fault := find_fault(best)):
        if (weights := _find_best(artifacts, done=done)) is None:
            lost.append(fault)
            state.best, state.worse, state.finished = None, 0, False
        else:
            with trainer.net.use_weights(weights):
                artifacts.write_best(state.best_step)
            messages.append(f"{fault}; written again from other files of this run")
    return messages, lost


def restore_or_refuse(artifacts: Artifacts, *, anyway: bool) -> list[str]:
    """Make damaged models of a run again; returns messages. What cannot be made again is left out only if `anyway`."""
    trainer = artifacts.trainer
    messages, lost = restore_models(artifacts, done=find_done_event(artifacts.folder) is not None)
    if lost and not anyway:
        raise CheckpointError(
            f"{'; '.join(lost)}; no checkpoint has these weights any more. Start over with --fresh, or continue without "
            "them with --anyway: later validations decide which model is the best"
        )
    if lost:
        trainer.log.write("lost", trainer.state.step, models=lost)
        trainer.save()
    return [*messages, *(f"{line}; continuing without it" for line in lost)]


def _weights_of(trainer: Trainer, step: int) -> Mapping[str, Tensor] | None:
    """The weights that were validated at a step, if there is a checkpoint of it."""
    found = trainer.checkpoints.load(step)
    return None if found is None else {**found.groups["weights"], **found.groups.get("average", {})}


def _find_best(artifacts: Artifacts, *, done: bool) -> Mapping[str, Tensor] | None:
    """The weights of the best model from elsewhere: a checkpoint, a snapshot, or the final model."""
    trainer, final = artifacts.trainer, artifacts.folder / FINAL
    step, steps = trainer.state.best_step, [step for step, _ in trainer.state.snapshots]
    if (weights := _weights_of(trainer, step)) is not None:
        return weights
    if step in steps:
        weights = trainer.snapshots.average([step])
        if weights.keys() >= trained_tensors(trainer.net).keys():  # a snapshot has no buffers
            return weights
    if done and not steps and find_fault(final) is None:
        return load_model(read_folder(final))[0].state_dict() | lora.zero_adapters(trainer.net)
    return None
