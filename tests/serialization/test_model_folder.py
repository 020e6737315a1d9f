"""What a folder is, and what loading a model needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.errors import CheckpointError, RegardError
from regard.files.folder import MANIFEST, read_folder, write_folder
from regard.serialization.model_folder import CONFIG, find_model, identify_folder
from regard.training.train import run_training
from tests.faulty import no_descriptors
from tests.training.small import tiny

LOAD = """
import sys, regard
model = regard.load(sys.argv[1])
assert len(model.run(["abc"])) == 1
assert "regard.api" in sys.modules
print(*sorted(name for name in sys.modules if name.startswith("regard.training")))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "copy"
    run_training(tiny(folder, train__steps=1, train__schedule={"kind": "constant"}))
    return folder


def test_loading_and_using_a_model_imports_nothing_of_training(run: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LOAD, run], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("\n", 0), done.stderr


def test_runs_models_and_other_folders(run: Path, tmp_path: Path) -> None:
    assert identify_folder(run) == "run"
    assert identify_folder(run / "final") == identify_folder(run / "best") == "model"
    assert identify_folder(tmp_path) is identify_folder(tmp_path / "nowhere") is None
    (tmp_path / "best").mkdir()
    assert identify_folder(tmp_path) is None, "a folder of data may have a class that is called best"
    assert identify_folder(run / "log.jsonl") is None, "a file"


def test_a_run_that_was_moved_without_its_recipe(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "best", tmp_path / "best")
    assert identify_folder(tmp_path) == "run"
    assert find_model(tmp_path).path == tmp_path / "best"


def test_a_hugging_face_folder_is_not_ours_although_we_wrote_it(tmp_path: Path) -> None:
    write_folder(tmp_path / "hf", {CONFIG: json.dumps({"model_type": "gpt2"}).encode()})
    assert (tmp_path / "hf" / MANIFEST).exists()
    assert identify_folder(tmp_path / "hf") is None


def test_a_damaged_model_is_still_a_model(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "final", tmp_path / "final")
    (tmp_path / "final" / CONFIG).write_text("{")
    assert identify_folder(tmp_path / "final") == "model"
    with pytest.raises(CheckpointError, match="is damaged"):
        read_folder(tmp_path / "final")


def test_final_comes_before_best_and_links_are_refused(run: Path, tmp_path: Path) -> None:
    assert find_model(run).path == run / "final"
    (tmp_path / "final").symlink_to(run / "final")
    with pytest.raises(CheckpointError, match="is a link, and links in a run folder are not followed; name its target"):
        find_model(tmp_path)
    with pytest.raises(RegardError, match="there is no model folder"):
        find_model(tmp_path / "nowhere")


def test_a_folder_that_cannot_be_read_now_is_not_taken_for_another(tmp_path: Path) -> None:
    """Without descriptors, a Hugging Face folder was a damaged model of ours, and a run's best model its final one."""
    write_folder(tmp_path / "hf", {"config.json": b'{"model_type": "gpt2"}'})
    assert identify_folder(tmp_path / "hf") is None
    with no_descriptors(), pytest.raises(CheckpointError, match=r"cannot read config\.json in .*Too many open files"):
        identify_folder(tmp_path / "hf")
