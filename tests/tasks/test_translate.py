"""Text to text: pairs to batches and back, tags, vocabularies for one side or both, limits, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.data.batch import IGNORE
from regard.data.pair_reader import Corpus
from regard.data.pairs import Pairs
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import CheckpointError, DataError, ShapeError, SpecError, UnknownName
from regard.families import bert, gpt, transformer
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.tasks import find, names
from regard.tasks.common.pairs_frame import unfold_length
from regard.tasks.common.seq2seq import TextPairsOptions
from regard.tasks.common.task import Dataset
from regard.tasks.translate import Translate, TranslateData
from regard.text import Bpe, Chars, Pieces
from regard.training.train import run_training
from tests.training.small import events, tiny

pytestmark = pytest.mark.numeric

GERMAN = Pairs(["a house", "the tree", "a"], ["ein haus", "der baum", "ein"], tag="2de", name="de")
FRENCH = Pairs(["a house", "the sea"], ["une maison", "la mer"], tag="2fr", weight=3.0, name="fr")


def made(*corpora: Pairs, **settings: Any) -> Translate:
    corpora = corpora or (GERMAN, FRENCH)
    settings = {"tokenizer": Chars(), "metrics": ("exact",), "max_length": 24, **settings}
    return Translate.prepare(TranslateData(**settings), Dataset(list(corpora), [], "", {}))


def sizes(task: Translate) -> dict[str, int]:
    """What the task gives a family, without the start token, which only Marian's takes."""
    return {name: value for name, value in task.model_arguments().items() if name != "start"}


def net_of(task: Translate, **changes: Any) -> Net:
    return transformer.spec(width=16, depth=1, heads=2, hidden=16, **{**sizes(task), **changes}).build(0).eval()


# The table of tasks.


def test_tasks_by_name() -> None:
    assert find("translate") is Translate
    assert "translate" in names()
    assert not {"task", "metrics", "advice", "__init__"} & set(names())
    with pytest.raises(UnknownName, match="no task 'translation'; did you mean 'translate'"):
        find("translation")


# Settings.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics": ["blue"]}, "no metric 'blue'; did you mean 'bleu'"),
        ({"metrics": []}, "`metrics` should name at least one score; the first decides which checkpoint is best"),
        ({"generate": "copy", "train": [{"paths": ["a.tsv"]}]}, "or from `generate`, not from both"),
        ({"generate": "copy", "valid": [{"paths": ["a.tsv"]}]}, "or from `generate`, not from both"),
        (
            {"generate": "copy", "filters": "standard"},
            "pairs that `generate` makes are not filtered; leave out `filters`",
        ),
        ({"max_length": 0}, "max_length: "),
        ({"unfold": 0.5}, "unfold: "),
        ({"unfold": 11}, "unfold: "),
        ({"tokeniser": "bpe"}, "no key 'tokeniser'; did you mean 'tokenizer'"),
        ({"train": [{"paths": ["a.txt"]}]}, "a corpus is two parallel text files or one"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        TranslateData.parse(settings)
    assert message in str(caught.value)


def test_a_model_of_one_side_translates_nothing() -> None:
    for spec in (gpt.spec(width=16, depth=1, heads=2, vocab=9), bert.spec(width=16, depth=1, heads=2, vocab=9)):
        with pytest.raises(SpecError, match="a model needs an encoder, a decoder and a head over tokens; use"):
            made().adapt_spec(spec)


def test_settings_there_and_back() -> None:
    settings = TranslateData(
        train=(Corpus(paths=("a.en", "a.de"), target_lang="de", weight=2),), tokenizer=Bpe(vocab=50), joint_vocab=False
    )
    assert TranslateData.parse(settings.plain()) == settings


# Reading.


def test_nothing_to_learn_from() -> None:
    with pytest.raises(DataError, match="no training data; name two text files"):
        Translate.read(TranslateData(), 1)


def test_a_validation_part_is_set_aside_from_each_corpus(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{name}{i}\t{i}{name}\n" for i in range(60)))
    settings = TranslateData(train=tuple(Corpus(paths=(str(tmp_path / f"{n}.tsv"),), target_lang=n) for n in "ab"))
    raw = Translate.read(settings, 1)
    assert [len(p) for p in raw.train] == [57, 57]
    assert [(len(p), p.tag) for p in raw.valid] == [(3, "2a"), (3, "2b")]
    for rest, aside in zip(raw.train, raw.valid, strict=True):
        assert not set(rest.source) & set(aside.source)
    assert Translate.read(settings, 1).fingerprint == raw.fingerprint != Translate.read(settings, 2).fingerprint
    assert any(line.startswith("a.tsv (a): 57 pairs") for line in raw.messages)


def test_nobody_is_judged_by_what_a_model_wrote(tmp_path: Path) -> None:
    for name in ("real", "drawn"):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{name} {i}\t{i}\n" for i in range(40)))
    real, drawn = (Corpus((str(tmp_path / f"{name}.tsv"),), hold_out=name == "real") for name in ("real", "drawn"))
    raw = Translate.read(TranslateData(train=(real, drawn)), 1)
    assert [len(pairs) for pairs in (*raw.train, *raw.valid)] == [38, 40, 2]
    assert "2 pairs are held out for validation; --valid names others" in raw.messages
    with pytest.raises(DataError, match="there is no validation data; give a corpus with --valid, or set `hold_out"):
        Translate.read(TranslateData(train=(drawn,)), 1)


def test_a_validation_part_that_is_trained_on_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"a{i}\t{i}a\n" for i in range(10)))
    corpora = (Corpus(paths=(str(path),)),)
    raw = Translate.read(TranslateData(train=corpora, valid=corpora), 1)
    assert "a.tsv: 10 of 10 pairs are also in the training data: their scores are too good" in raw.messages
    assert raw.statistics["valid"][0]["seen"] == 10


def test_a_generator_is_not_told_that_copies_are_copies() -> None:
    assert Translate.read(TranslateData.parse({"generate": "copy"}), 1).messages == []


# Encoding.


def test_tags_come_first_and_are_never_spelled_by_text() -> None:
    task = made()
    encoded = task.encode([GERMAN, FRENCH])
    de, fr = task.source_tokenizer.tag("<2de>"), task.source_tokenizer.tag("<2fr>")
    assert [row[0] for row in encoded.source] == [de, de, de, fr, fr]
    assert de not in task.source_tokenizer.encode("<2de> a house")
    assert [task.tokenizer.decode(row) for row in encoded.target] == [*GERMAN.target, *FRENCH.target]
    assert encoded.groups is not None
    assert encoded.groups.tolist() == [0, 0, 0, 1, 1]
    assert encoded.shares == (3.0, 6.0), "size times weight"


def test_one_corpus_has_no_groups() -> None:
    encoded = made(GERMAN).encode([GERMAN])
    assert (encoded.groups, encoded.shares, encoded.left_out) == (None, None, 0)


def test_pairs_longer_than_longest_are_left_out_and_counted() -> None:
    task = made(max_length=9)
    encoded = task.encode([GERMAN, FRENCH])
    assert encoded.left_out == 2, (
        "`the tree` with tag and end mark is ten tokens, and `une maison` eleven with its mark"
    )
    assert encoded.lengths.max() == 9
    assert encoded.shares == (2.0, 3.0), "shares are of what is left"
    assert len(encoded) == 3
    with pytest.raises(DataError, match=r"every pair of fr has more than 7 tokens; raise data\.max_length"):
        made(max_length=7).encode([Pairs(["a"], ["b"]), FRENCH])


def test_one_vocabulary_or_two() -> None:
    joint, apart = made(), made(joint_vocab=False)
    assert joint.source_tokenizer is joint.tokenizer
    assert set(joint.files()) == {"tokenizer.json"}
    assert joint.model_arguments() == {"vocab": joint.tokenizer.size, "length": 26, "start": joint.tokenizer.bos}
    assert set(apart.files()) == {"tokenizer.json", "tokenizer.source.json"}
    assert apart.model_arguments() == {
        "vocab": apart.tokenizer.size,
        "source_vocab": apart.source_tokenizer.size,
        "length": 26,
        "start": apart.tokenizer.bos,
    }
    assert apart.source_tokenizer.tags == ("<2de>", "<2fr>")
    assert apart.tokenizer.tags == (), "tags are read, never written"
    for task in (joint, apart):
        again = Translate.load(task.settings, task.files())
        assert again.files() == task.files()
        assert again.joint_vocab is task.joint_vocab


def test_a_model_without_its_tokenizer() -> None:
    with pytest.raises(
        CheckpointError, match=r"there is no tokenizer\.json among config\.json; a model cannot be used"
    ):
        Translate.load(TranslateData(), {"config.json": b""})


# Batches and loss.


def test_a_batch_by_hand() -> None:
    task = made(Pairs(["ab", "b"], ["ba", "aab"]))
    batch = task.batch(task.encode([Pairs(["ab", "b"], ["ba", "aab"])]), np.array([1, 0]))
    pad, bos, eos = task.tokenizer.pad, task.tokenizer.bos, task.tokenizer.eos
    a, b = task.tokenizer.encode("a")[0], task.tokenizer.encode("b")[0]
    assert batch.source is not None
    assert batch.source.ids.tolist() == [[b, eos, pad], [a, b, eos]]
    assert batch.source.lengths == (2, 3)
    assert batch.given.ids.tolist() == [[bos, a, a, b], [bos, b, a, pad]]
    assert batch.given.lengths == (4, 3)
    assert batch.wanted.tolist() == [[a, a, b, eos], [b, a, eos, IGNORE]]
    assert batch.tokens == 7


@pytest.mark.parametrize("joint", [True, False])
def test_the_loss_is_what_score_says(joint: bool) -> None:
    """Padding, batches and tags change nothing: the summed loss of a batch is minus the log-probability of its pairs."""
    task = made(joint_vocab=joint)
    net = net_of(task).double()
    encoded = task.encode([GERMAN, FRENCH])
    loss = task.loss(net, task.batch(encoded, np.arange(5)), 0.0)
    scores = task.score(TorchEngine(net), GERMAN.source, GERMAN.target, TextPairsOptions(tag="2de")) + task.score(
        TorchEngine(net), FRENCH.source, FRENCH.target, TextPairsOptions(tag="2fr")
    )
    assert float(loss.total.detach()) == pytest.approx(-sum(scores), rel=1e-9)
    assert float(loss.plain) == pytest.approx(-sum(scores), rel=1e-9)
    assert loss.tokens == sum(len(t) + 1 for t in [*GERMAN.target, *FRENCH.target])


@given(order=st.permutations(range(5)), cut=st.integers(1, 4))
def test_however_batches_are_cut_the_loss_is_the_same(order: list[int], cut: int) -> None:
    task = made()
    net, encoded = net_of(task).double(), task.encode([GERMAN, FRENCH])
    whole = task.loss(net, task.batch(encoded, np.arange(5)), 0.1)
    parts = [task.loss(net, task.batch(encoded, np.array(part)), 0.1) for part in (order[:cut], order[cut:])]
    assert sum(float(part.total.detach()) for part in parts) == pytest.approx(float(whole.total.detach()), rel=1e-10)
    assert sum(part.tokens for part in parts) == whole.tokens


# Running.


def test_outputs_are_in_order_and_do_not_depend_on_company() -> None:
    task = made()
    net = net_of(task)
    texts = ["the sea", "a", "a house the tree", "b", "house"]
    together = task.run(TorchEngine(net), texts, Search(beam=2))
    assert [each[0].text for each in together] == [
        task.run(TorchEngine(net), [text], Search(beam=2))[0][0].text for text in texts
    ]
    assert task.run(TorchEngine(net), [], Search(beam=2)) == []


def test_the_tag_says_which_language() -> None:
    task = made()
    net = net_of(task)
    sources = task.encode_inputs(["a house"], TextPairsOptions(tag="2fr"))
    assert sources[0][0] == task.source_tokenizer.tag("<2fr>")
    assert task.score(TorchEngine(net), ["a"], ["ein"], TextPairsOptions(tag="2de")) != task.score(
        TorchEngine(net), ["a"], ["ein"], TextPairsOptions(tag="2fr")
    )
    with pytest.raises(UnknownName, match="no tag '<2es>'"):
        task.run(TorchEngine(net), ["a"], Search(), TextPairsOptions(tag="2es"))


def test_long_inputs_are_read_up_to_longest_and_outputs_end() -> None:
    """Also with positions that are learned, of which there are only so many."""
    task = made(max_length=6)
    spec = transformer.spec(width=16, depth=1, heads=2, hidden=16, **sizes(task))
    net = spec.overlay({"embed": {"position": {"kind": "learned"}}}).build(0).eval()
    assert len(task.encode_inputs(["a house and a tree"], TextPairsOptions(tag="2de"))[0]) == 6
    assert task.encode_inputs(["a house and a tree"], TextPairsOptions(tag="2de"))[0][-1] == task.source_tokenizer.eos
    for search in (Search(beam=1), Search(beam=3), Search(beam=1, max_length=100)):
        ((output,),) = task.run(
            TorchEngine(net), ["a house and a tree and the sea"], search, TextPairsOptions(tag="2de")
        )
        assert len(output.text) <= net.spec.length
    ((short,),) = task.run(TorchEngine(net), ["a house"], Search(beam=1, max_length=2))
    assert len(short.text) <= 2
    with pytest.raises(ShapeError, match="has 8 positions, asked for"):
        task.score(TorchEngine(net), ["a"], ["a very long output"])


def test_prefixes() -> None:
    task = made()
    found = task.run(
        TorchEngine(net_of(task)), ["a house", "the sea"], Search(beam=2), TextPairsOptions(prefixes=["ein", "der b"])
    )
    assert [each[0].text[:3] for each in found] == ["ein", "der"]
    assert found[1][0].text.startswith("der b")
    with pytest.raises(DataError, match="expected one entry per source in prefixes, got 1 for 2 sources"):
        task.run(TorchEngine(net_of(task)), ["a house", "the sea"], Search(), TextPairsOptions(prefixes=["ein"]))


def test_scores_need_as_many_outputs_as_inputs() -> None:
    task = made()
    with pytest.raises(DataError, match="as many outputs as inputs are needed, got 2 for 1"):
        task.score(TorchEngine(net_of(task)), ["a"], ["b", "c"])


def test_the_unknown_token_is_never_written() -> None:
    """However likely it is, the outputs are those of a model that does not think of it."""
    task = made()
    net = net_of(task)
    plain = task.run(TorchEngine(net), ["a house", "the sea"], Search(beam=1))
    source = (torch.tensor(task.encode_inputs(["a house"], TextPairsOptions())), Coords.span(8))
    with torch.no_grad():
        stream = net(torch.tensor([[task.tokenizer.bos]]), Coords.span(1), source)
        net.embed.weight[task.tokenizer.unk] = 100 * stream[0, 0]
        assert int(net.logits(stream).argmax()) == task.tokenizer.unk
    outputs = task.run(TorchEngine(net), ["a house", "the sea"], Search(beam=1))
    assert [each[0].text for each in outputs] == [each[0].text for each in plain]


# Attention.


def test_attention_has_labels_for_both_sides_and_sums_to_one() -> None:
    task = made()
    net = net_of(task)
    weights, source, target = task.forward_pass(net, "a house", "ein haus", TextPairsOptions(tag="2de")).attention(net)
    assert source == ["<2de>", "a", "▁", "h", "o", "u", "s", "e", "</s>"]
    assert target == ["<s>", *"ein▁haus"]
    assert set(weights) == {"encoder.blocks.0.mix", "decoder.blocks.0.mix", "decoder.blocks.0.cross"}
    sizes = {"encoder.blocks.0.mix": (9, 9), "decoder.blocks.0.mix": (9, 9), "decoder.blocks.0.cross": (9, 9)}
    for name, w in weights.items():
        assert w.shape == (2, *sizes[name])
        torch.testing.assert_close(w.sum(-1), torch.ones(w.shape[:-1]))
    assert weights["decoder.blocks.0.mix"].triu(1).abs().max() == 0, "causal"
    assert task.forward_pass(net, "a house", "ein haus").attention(net)[1][0] == "a", "without a tag there is none"


# Many to many, end to end.


def test_many_to_many_end_to_end(tmp_path: Path) -> None:
    """Two corpora with the same sources and different targets: only the tag tells them apart, and it suffices."""
    numbers = [str(i) for i in range(10, 22)]
    for lang, letters in (("up", "ABCDEFGHIJ"), ("low", "abcdefghij")):
        rows = [f"{n}\t{''.join(letters[int(d)] for d in n)}\n" for n in numbers]
        (tmp_path / f"{lang}.tsv").write_text("".join(rows))
    corpora = [{"paths": [str(tmp_path / f"{lang}.tsv")], "target_lang": lang} for lang in ("up", "low")]
    recipe = {
        "task": "translate",
        "data": {"train": corpora, "valid": corpora, "metrics": ["exact"], "tokenizer": "chars"},
    }
    changes: dict[str, Any] = {
        "train__steps": 160,
        "train__validate_every": 40,
        "train__save_every": 160,
        "model__width": 32,
    }
    changes |= {
        "train__schedule": {"kind": "cosine", "lr": 0.01, "warmup": 10},
        "train__batch_tokens": 512,
        "model__dropout": 0.0,
    }
    run_training(tiny(tmp_path / "run", recipe, **changes, model__norm="pre"))
    assert events(tmp_path / "run", "done")[0]["scores"]["exact"] == 100.0
    model = regard.load(tmp_path / "run")
    assert model.run(["12", "20"], tag="2up") == ["BC", "CA"]
    assert model.run(["12", "20"], tag="2low") == ["bc", "ca"]
    assert model.tokenizer.tags == ("<2low>", "<2up>")
    assert model.score(["12"], ["BC"], tag="2up")[0] > model.score(["12"], ["BC"], tag="2low")[0]
    assert model.attention("12", tag="2up").source[0] == "<2up>"


def test_text_that_was_cut_is_judged_joined() -> None:
    """Outputs are joined when they are decoded, so what they are compared with is too."""
    pairs = Pairs(["a strap@@ less gown"], ["ein träger@@ loses kle@@"], name="cut")
    task = made(pairs, tokenizer=Pieces())
    (trial,) = task.eval_sets([pairs])
    assert trial.references == ["ein trägerloses kle"]
    assert trial.references[0] == task.tokenizer.decode(task.tokenizer.encode(pairs.target[0]))
    assert made(GERMAN).eval_sets([GERMAN])[0].references == GERMAN.target


# Dynamic unfolding.


@given(st.integers(1, 500), st.sampled_from([1.0, 1.1, 1.2, 1.5, 2.0, 3.3]))
def test_a_source_unfolds_into_the_next_whole_number_of_columns(length: int, factor: float) -> None:
    columns = unfold_length(length, factor)
    assert columns - 1 < Fraction(str(factor)) * length <= columns


def test_columns_that_unfolding_adds_are_tokens() -> None:
    """They are end marks that the model reads, in a batch as in a text to translate, and no padding."""
    task, plain = made(unfold=1.5), made()
    examples, eos = task.encode([GERMAN, FRENCH]), task.source_tokenizer.eos
    batch, before = (each.batch(examples, np.arange(5)) for each in (task, plain))
    assert batch.source is not None
    assert before.source is not None
    assert batch.source.lengths == tuple(math.ceil(1.5 * length) for length in before.source.lengths)
    texts = [(text, pairs.tag) for pairs in (GERMAN, FRENCH) for text in pairs.source]
    for row, length, old, (text, tag) in zip(
        batch.source.ids, batch.source.lengths, before.source.lengths, texts, strict=True
    ):
        assert row[old - 1 : length].tolist() == [eos] * (length - old + 1)
        assert row[length:].tolist() == [task.source_tokenizer.pad] * (batch.source.ids.shape[1] - length)
        assert task.encode_inputs([text], TextPairsOptions(tag=tag)) == [row[:length].tolist()]
    assert torch.equal(batch.given.ids, before.given.ids)
    assert (batch.tokens, task.model_arguments()["length"]) == (before.tokens, 38)


def test_words_align_with_unfolded_sources() -> None:
    """Words are aligned to words of the source, never to the columns behind it."""
    task = made(unfold=2.0, max_length=8)
    net = net_of(task)
    for text, words in (("a house", 2), ("the tree a house", 2)):  # the second is cut after eight tokens
        (links,) = task.align(TorchEngine(net), [text], ["ein haus"], TextPairsOptions(tag="2de"))
        assert {source for source, _ in links} <= set(range(words))
