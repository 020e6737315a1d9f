"""COMET's scores are those of its package, with a tiny random model.

The package needs an older transformers than the other tests, so this runs by a command, in an environment with
`regard[comet]`: `python -m pytest tests/metrics/comet_package.py`.
"""

from __future__ import annotations

import string
from pathlib import Path

import comet
import numpy as np
import pytest
import torch

from regard.metrics import METRICS

pytestmark = [pytest.mark.numeric, pytest.mark.filterwarnings("ignore")]

SOURCES = ["a dog runs.", "the cat", "hello"]
OUTPUTS = ["ein hund", "die katze", "hallo"]
REFERENCES = ["ein hund rennt.", "die katze", "guten tag"]


def make_encoder(folder: Path) -> None:
    """An XLM-R of two layers that knows letters."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizerFast

    marks = [(mark, 0.0) for mark in ("<s>", "<pad>", "</s>", "<unk>")]
    vocab = [*marks, ("▁", -2.0), *((letter, -3.0) for letter in string.ascii_letters + ".,!?"), ("<mask>", 0.0)]
    pieces = Tokenizer(models.Unigram(vocab, unk_id=3))
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    XLMRobertaTokenizerFast(tokenizer_object=pieces, model_max_length=64).save_pretrained(folder)
    shape = XLMRobertaConfig(
        vocab_size=len(vocab), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=70, pad_token_id=1, bos_token_id=0, eos_token_id=2,
    )  # fmt: skip
    XLMRobertaModel(shape, add_pooling_layer=False).save_pretrained(folder)


def make_model(folder: Path, encoder: Path) -> Path:
    """A folder as `comet-score` keeps it; returns its checkpoint."""
    import pytorch_lightning
    import yaml
    from comet.models import RegressionMetric

    model = RegressionMetric(pretrained_model=str(encoder), hidden_sizes=[8], local_files_only=True, dropout=0.0)
    settings = {key: value for key, value in model.hparams.items() if key != "load_pretrained_weights"}
    path = folder / "checkpoints" / "model.ckpt"
    path.parent.mkdir(parents=True)
    (folder / "hparams.yaml").write_text(yaml.safe_dump(settings | {"class_identifier": "regression_metric"}))
    stored = {
        "state_dict": model.state_dict(), "hyper_parameters": dict(model.hparams),
        "pytorch-lightning_version": pytorch_lightning.__version__,
    }  # fmt: skip
    torch.save(stored, path)
    return path


def test_scores_are_those_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    make_encoder(tmp_path / "xlmr")
    checkpoint = make_model(tmp_path / "model", tmp_path / "xlmr")
    monkeypatch.setenv("REGARD_COMET", str(tmp_path / "model"))
    found = METRICS["comet"].items(OUTPUTS, REFERENCES, SOURCES)
    rows = [{"src": s, "mt": o, "ref": r} for s, o, r in zip(SOURCES, OUTPUTS, REFERENCES, strict=True)]
    theirs = comet.load_from_checkpoint(str(checkpoint), local_files_only=True).predict(rows, batch_size=2, gpus=0)
    assert found.score() == pytest.approx(100 * theirs.system_score)
    assert found.score(np.array([0, 0, 2])) == pytest.approx(100 * (2 * theirs.scores[0] + theirs.scores[2]) / 3)
