"""What is wrong with a folder of others, all of it, in words; and what looks wrong and is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.conversion import hf
from regard.conversion.weight_files import list_weights
from regard.errors import CheckpointError, RegardError, SpecError, UnknownName
from regard.families import bert, transformer, vit
from regard.nn.positions.position import Rotary
from regard.nn.positions.rope_scaling import LinearScaling
from tests.conversion.tiny import MODELS, compared, make, put, saved
from tests.faulty import no_descriptors


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(make("gpt2"), tmp_path_factory.mktemp("gpt2"))


@pytest.fixture
def folder(gpt2: Path, tmp_path: Path) -> Path:
    """A folder of a tiny GPT-2, to be spoilt."""
    for file in gpt2.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def configure(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def reweigh(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    path = folder / "model.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    path.unlink()
    save_file({name: t.contiguous() for name, t in change(weights).items()}, path)


def said(folder: Path, kind: type[RegardError] = CheckpointError) -> str:
    with pytest.raises(kind) as caught:
        hf.read(folder)
    return str(caught.value)


# ------------------------------------------------------------------------------------------------- configurations


def test_an_unknown_family(folder: Path) -> None:
    configure(folder, model_type="gtp2")
    assert said(folder, UnknownName) == "no model family 'gtp2'; did you mean 'gpt2'?"
    configure(folder, model_type=None)
    assert said(folder, SpecError).endswith(
        "config.json has no model_type: it is not the configuration of a Hugging Face model"
    )


def test_an_unknown_class(folder: Path) -> None:
    configure(folder, architectures=["GPT2LMHeadModl"])
    assert said(folder, UnknownName) == "no gpt2 model 'GPT2LMHeadModl'; did you mean 'GPT2LMHeadModel'?"
    configure(folder, architectures="GPT2LMHeadModel")
    assert said(folder) == "architectures should be a list of names, got 'GPT2LMHeadModel'"


def test_all_that_cannot_be_followed(folder: Path) -> None:
    configure(folder, scale_attn_by_inverse_layer_idx=True, activation_function="mish")
    assert said(folder) == (
        f"{folder}/config.json: these settings of a gpt2 model are not supported: "
        "scale_attn_by_inverse_layer_idx=True (only False), "
        "activation_function='mish' (it should be one of gelu, gelu_new, gelu_pytorch_tanh, relu, silu, swish)"
    )


@pytest.mark.parametrize("value", ["many", -3, 0, [768], {"a": 1}, 1.5])
def test_sizes_that_are_none(folder: Path, value: Any) -> None:
    configure(folder, n_head=value)
    assert said(folder).startswith(f"{folder}/config.json: ")


def test_more_layers_than_weights_are_not_built(folder: Path) -> None:
    configure(folder, n_layer=10**12)
    assert "depth is 1,000,000,000,000; a stack may have at most 500 layers" in said(folder)


def test_a_vocabulary_of_any_size_is_not_made(folder: Path) -> None:
    configure(folder, vocab_size=10**12)
    assert "transformer.wte.weight should be (1000000000000, 16), got (23, 16)" in said(folder)


def test_stretched_rotary_positions(tmp_path: Path) -> None:
    saved(make("llama"), tmp_path)
    configure(tmp_path, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 8.0})
    assert "rotary positions of type 'dynamic' are not supported; available: default, linear, llama3, yarn" in said(
        tmp_path
    )
    configure(tmp_path, rope_parameters={"rope_type": "llama3", "rope_theta": 1e4})
    assert "factor is missing" in said(tmp_path)
    configure(tmp_path, rope_parameters=None, rope_theta=500.0, rope_scaling={"type": "linear", "factor": 2.0})
    assert hf.read(tmp_path).spec.decoder.position == Rotary(500.0, rope_scaling=LinearScaling(2.0))  # type: ignore[union-attr]


def test_a_window_in_some_layers(tmp_path: Path) -> None:
    saved(make("qwen2, window"), tmp_path)
    configure(tmp_path, layer_types=None, max_window_layers=1)
    assert "some layers have a sliding window and others do not, which is not supported" in said(tmp_path)
    configure(tmp_path, max_window_layers=-(10**12))
    assert hf.read(tmp_path).spec == hf.read(saved(make("qwen2, window"), tmp_path / "same")).spec
    configure(tmp_path, max_window_layers=10**12, num_hidden_layers=10**11)
    assert "depth is 100,000,000,000; a stack may have at most 500 layers" in said(tmp_path)


def test_no_config(tmp_path: Path) -> None:
    assert said(tmp_path, SpecError) == (
        f"{tmp_path} has no config.json: it is neither a Regard model folder nor a Hugging Face folder"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is damaged: it is not JSON"),
        ("[]", "should hold an object, got list"),
        (" " * 10_000_001, "is refused: it has more than 10000000 bytes"),
    ],
)
def test_a_config_that_is_none(folder: Path, text: str, why: str) -> None:
    (folder / "config.json").write_text(text)
    assert f"config.json {why}" in said(folder)


def test_quantised_weights(folder: Path) -> None:
    configure(folder, quantization_config={"bits": 4})
    assert (
        said(folder)
        == f"{folder} holds quantized weights, which only its own library can read; use the unquantized model"
    )


# ------------------------------------------------------------------------------------------------- weights


def test_all_faults_of_the_weights_at_once(folder: Path) -> None:
    def spoil(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        del weights["transformer.ln_f.bias"]
        weights["transformer.h.1.attn.c_attn.weight"] = torch.zeros(16, 47)
        weights["transformer.extra.weight"] = torch.zeros(2)
        weights["transformer.h.0.ln_1.weight"] = torch.ones(16, dtype=torch.int32)
        return weights

    reweigh(folder, spoil)
    assert said(folder) == (
        f"the weights of {folder} do not fit a gpt2 model: transformer.ln_f.bias is missing; "
        "transformer.extra.weight is not part of this model; "
        "transformer.h.1.attn.c_attn.weight should be (16, 48), got (16, 47); "
        "transformer.h.0.ln_1.weight should hold real numbers, got I32"
    )


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert said(folder) == f"{folder} has no model.safetensors; without weights there is nothing to convert"


def test_damaged_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    assert "model.safetensors is damaged: it is not a valid safetensors file" in said(folder)


def test_a_tied_copy_that_differs(folder: Path) -> None:
    reweigh(folder, lambda w: w | {"lm_head.weight": w["transformer.wte.weight"] + 1})
    assert "lm_head.weight should be the same as transformer.wte.weight" in said(folder)


def test_a_tied_copy_may_be_there_or_stand_in(folder: Path) -> None:
    before = hf.read(folder).weights["embed.weight"]
    reweigh(folder, lambda w: w | {"lm_head.weight": w["transformer.wte.weight"].clone()})
    assert torch.equal(hf.read(folder).weights["embed.weight"], before)
    reweigh(folder, lambda w: {name: t for name, t in w.items() if name != "transformer.wte.weight"})
    assert torch.equal(hf.read(folder).weights["embed.weight"], before)


def test_a_bias_for_which_there_is_no_place(tmp_path: Path) -> None:
    model = make("bart")
    model.final_logits_bias += 1
    saved(model, tmp_path)
    assert "final_logits_bias should be zero, because our model has no such weight" in said(tmp_path)


def test_a_body_saved_alone(folder: Path) -> None:
    """Without the prefix, and with the masks that older files have."""
    model = make("gpt2")
    reweigh(folder, lambda w: {name.removeprefix("transformer."): t for name, t in w.items()})
    reweigh(folder, lambda w: w | {"h.0.attn.bias": torch.ones(1, 1, 16, 16, dtype=torch.bool)})
    found = hf.read(folder)
    assert compared("gpt2", model, put(found.spec.build(), found.weights)) <= 1e-5


def test_norms_by_their_old_names_and_heads_of_pretraining(tmp_path: Path) -> None:
    """As the first BERT was published: as a masked model, with its other head."""
    model = make("bert, both heads")
    saved(model, tmp_path)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def renamed(name: str) -> str:
        return next((name.removesuffix(new) + was for new, was in old.items() if name.endswith(new)), name)

    reweigh(tmp_path, lambda w: {renamed(name): t for name, t in w.items()})
    configure(tmp_path, architectures=["BertForMaskedLM"])
    found = hf.read(tmp_path)
    assert found.use == "BertForPreTraining"
    assert compared("bert, both heads", model, put(found.spec.build(), found.weights)) <= 1e-5


# ------------------------------------------------------------------------------------------------- several files


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    make("gpt2").save_pretrained(tmp_path, max_shard_size="8KB")
    return tmp_path


def index(folder: Path, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": change(json.loads(path.read_text())["weight_map"])}))


def test_several_files_are_one(sharded: Path) -> None:
    assert len(list(sharded.glob("*.safetensors"))) > 2
    found = hf.read(sharded)
    assert compared("gpt2", make("gpt2"), put(found.spec.build(), found.weights)) <= 1e-5


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "", "..", "a\\b", "a\0b"])
def test_an_index_names_only_files_beside_it(sharded: Path, name: str) -> None:
    index(sharded, lambda w: w | {"transformer.wte.weight": name})
    assert said(sharded) == (
        f"{sharded}/model.safetensors.index.json is refused: it names {name!r}, not plain files in the same folder"
    )


def test_a_file_of_several_that_is_missing(sharded: Path) -> None:
    first = min(sharded.glob("*.safetensors"))
    first.unlink()
    assert said(sharded) == f"{sharded} is incomplete: {first.name} is missing"


def test_an_index_that_lists_what_is_not_there(sharded: Path) -> None:
    index(sharded, lambda w: w | {"ghost": next(iter(w.values()))})
    assert said(sharded) == (
        f"{sharded} is damaged: model.safetensors.index.json lists ghost, which its files do not hold"
    )


@pytest.mark.parametrize("text", ["[]", "{}", '{"weight_map": {"a": 1}}'])
def test_an_index_that_is_none(sharded: Path, text: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(text)
    assert said(sharded).endswith("is damaged: it should have a weight_map from names to files")


# ------------------------------------------------------------------------------------------------- pickles


def test_pickles_are_refused_and_opened_by_those_who_trust_them(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "is a pickle, and opening a pickle can run any code that it names" in said(folder)
    found = hf.read(folder, trust=True)
    assert compared("gpt2", make("gpt2"), put(found.spec.build(), found.weights)) <= 1e-5


# ------------------------------------------------------------------------------------------------- out


def test_a_model_that_others_do_not_have() -> None:
    small: dict[str, Any] = dict(width=16, depth=1, heads=2, vocab=9)
    with pytest.raises(SpecError) as caught:
        hf.match_form(transformer.spec(**small))
    assert str(caught.value) == (
        "Hugging Face has no equivalent model; the nearest is marian (MarianMTModel), but "
        "embed.position.layout should be 'halves', is 'pairs'; head.bias should be True, is False"
    )
    with pytest.raises(
        SpecError, match=r"the nearest is vit \(ViTForImageClassification\), but .*embed.first should be True"
    ):
        hf.match_form(vit.spec(width=16, depth=1, heads=2, patch=4, image=8, classes=3, pool="mean"))


def test_training_alone_makes_no_other_model() -> None:
    """Dropout, where weights began and what is computed twice are left behind."""
    spec = bert.spec(width=16, depth=1, heads=2, vocab=9, dropout=0.3)
    changed = spec.replace("embed.dropout", 0.0).replace("init", "xavier").replace("encoder.recompute", True)
    assert hf.match_form(changed)[2] == hf.match_form(spec)[2]


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5"])
def test_a_value_of_any_kind_is_used_or_refused_in_words(name: str, tmp_path: Path) -> None:
    model = saved(make(next(n for n in MODELS if n.startswith(name))), tmp_path)
    config = json.loads((model / "config.json").read_text())
    for key in (*config, "num_labels", "id2label"):
        for value in (-255, "x", 1e999):
            (model / "config.json").write_text(json.dumps(config | {key: value}))
            with suppress(RegardError):  # any other error is one of ours
                hf.read(model)
    (model / "config.json").write_text(
        json.dumps(config | {"num_labels": 1e999, "architectures": ["BertForTokenClassification"]})
    )
    if name == "bert":
        assert said(model).endswith("cannot convert float infinity to integer")


def test_weights_that_cannot_be_opened_now_are_not_damaged(folder: Path) -> None:
    """The library opens them twice, and torch says in words of its own that it cannot."""
    told = 0
    list_weights(folder)
    for spare in range(4):
        with no_descriptors(spare):
            try:
                list_weights(folder)
            except CheckpointError as error:
                told += 1
                assert "Too many open files" in str(error) and "raise the limit of open files" in str(error)
    assert 0 < told < 4
