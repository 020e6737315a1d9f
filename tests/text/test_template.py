"""What stands around texts, read from the files of others and written again; names of ours for tokens of theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tokenizers
from tokenizers import models, processors

from regard.errors import CheckpointError, DataError
from regard.text import Bpe, Template, Tokenizer, WordPiece
from regard.text.template import read_names

IDS = {"[CLS]": 2, "[SEP]": 3}
BERT = Template.bert("[CLS]", "[SEP]", IDS)


def plain(post: Any) -> Any:
    return json.loads(post.__getstate__())


def test_one_text_and_two() -> None:
    assert BERT.fill([7, 8], None) == ([2, 7, 8, 3], [0, 0, 0, 0])
    assert BERT.fill([7, 8], [9]) == ([2, 7, 8, 3, 9, 3], [0, 0, 0, 0, 1, 1])
    assert BERT.fill([], []) == ([2, 3, 3], [0, 0, 1])
    assert (BERT.opening, BERT.closing, BERT.segments) == ([2], [3], True)


@pytest.mark.parametrize(
    ("post", "one", "two"),
    [
        (processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)), [2, 7, 3], ([2, 7, 3, 8, 3], [0, 0, 0, 1, 1])),
        (processors.RobertaProcessing(("</s>", 3), ("<s>", 2)), [2, 7, 3], ([2, 7, 3, 3, 8, 3], [0] * 6)),
        (processors.ByteLevel(), [7], ([7, 8], [0, 1])),
        (
            processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)]),
            [7, 1],
            ([7, 1, 8, 1], [0, 0, 0, 0]),
        ),
        (
            processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing("<s> $0", None, [("<s>", 1)])]),
            [1, 7],
            ([7, 8], [0, 1]),
        ),
    ],
    ids=["bert", "roberta", "gpt2", "t5", "llama3"],
)
def test_the_forms_that_files_have(post: Any, one: list[int], two: tuple[list[int], list[int]]) -> None:
    template = Template.read(plain(post))
    assert template is not None
    assert template.fill([7], None)[0] == one
    assert template.fill([7], [8]) == two
    again = Template.read(plain(template.to_post_processor({"<pad>": ("[PAD]", 0)})))
    assert again is not None and again.fill([7], [8]) == two and again.fill([7], None)[0] == one


def test_names_travel_with_the_template() -> None:
    post = plain(BERT.to_post_processor({"<pad>": ("[PAD]", 0), "<mask>": ("[MASK]", 4)}))
    assert read_names(post) == {"<pad>": 0, "<mask>": 4}
    assert read_names(None) == {} and Template.read(None) is None


def test_tokens_may_be_spelled_with_what_templates_mean_something_by() -> None:
    odd = Template.of(["a:b c"], ["$end"], {"a:b c": 5, "$end": 6})
    again = Template.read(plain(odd.to_post_processor({})))
    assert again is not None and again.fill([1], [2])[0] == [5, 1, 6, 2, 6]


def test_a_tokenizer_without_a_template_frames_as_bert_does() -> None:
    ours = Tokenizer.train(["a b c"] * 3, Bpe(50))
    assert ours.template is None
    assert ours.frame([7], [8]) == ([ours.bos, 7, ours.eos, 8, ours.eos], [0, 0, 0, 1, 1])


def theirs(post: Any) -> bytes:
    """A tokenizer that spells its roles in its own way."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    core = tokenizers.Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, "[UNK]"))
    core.add_special_tokens(names[:5])
    core.post_processor = post
    return core.to_str().encode()


NAMES = {"<pad>": ("[PAD]", 0), "<s>": ("[CLS]", 2), "</s>": ("[SEP]", 3), "<unk>": ("[UNK]", 1)}


def test_a_tokenizer_of_others_has_our_roles() -> None:
    ours = Tokenizer.from_bytes(theirs(BERT.to_post_processor(NAMES | {"<mask>": ("[MASK]", 4)})), "theirs")
    assert (ours.pad, ours.bos, ours.eos, ours.unk) == (0, 2, 3, 1)
    assert ours.tag("<mask>") == ours.tag("[MASK]") == 4
    assert {*ours.tags} == {"<mask>", "[MASK]"}
    assert ours.tokens(range(7))[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert ours.decode(ours.frame(ours.encode("a"))[0]) == "a"
    assert Tokenizer.from_bytes(ours.to_bytes(), "ours").fingerprint == ours.fingerprint


def test_one_token_may_have_two_roles() -> None:
    ours = Tokenizer.from_bytes(theirs(BERT.to_post_processor(NAMES | {"<pad>": ("[SEP]", 3)})), "theirs")
    assert ours.pad == ours.eos == 3


@pytest.mark.parametrize(
    ("post", "fault"),
    [
        (BERT.to_post_processor({}), "no special token <pad>, <s>, </s>, <unk>"),
        (BERT.to_post_processor(NAMES | {"<pad>": ("a", 5)}), "its <pad> is not a special token"),
        (
            Template.bert("x", "y", {"x": 90, "y": 3}).to_post_processor(NAMES),
            "its template has tokens that are not in its vocabulary",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(post: Any, fault: str) -> None:
    with pytest.raises(CheckpointError, match=f"theirs is not a usable tokenizer: .*{fault}"):
        Tokenizer.from_bytes(theirs(post), "theirs")


def test_a_template_that_leaves_a_text_out_is_refused() -> None:
    post = plain(BERT.to_post_processor({})) | {"pair": [{"Sequence": {"id": "A", "type_id": 0}}]}
    with pytest.raises(DataError, match="cannot use a tokenizer whose template omits or repeats a text"):
        Template.read(post)


def test_wordpiece_goes_on_words_with_marks() -> None:
    ours = Tokenizer.train(["playing played plays player, say says"] * 9, WordPiece(vocab=40))
    pieces = ours.tokens(ours.encode("player says"))
    assert pieces[0].startswith("▁") and "".join(pieces).replace("##", "") == "▁player▁says"
    assert any(piece.startswith("##") for piece in ours.tokens(ours.encode("sayplay")))
    assert ours.encode("xyz") == [ours.unk]
    for text in ("player, say", "#say ## says", "##ing"):
        assert ours.unk in ours.encode(text) or ours.decode(ours.encode(text)) == text
    assert ours.frame([9])[0] == [ours.bos, 9, ours.eos]
