"""Recommendation: the losses of both kinds of models, scores, baselines, what users type and read, and what is refused."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.interactions import Interactions
from regard.data.leave_one_out import LeaveOneOut
from regard.data.ragged import Ragged
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import CheckpointError, DataError, SpecError
from regard.families import bert4rec, gpt, rnn, sasrec, transformer
from regard.nn.core.coords import Coords
from regard.tasks.common.item_baselines import find_neighbors, score_item_knn, score_popularity
from regard.tasks.common.item_names import ItemNames, split_history
from regard.tasks.common.losses import count_losses
from regard.tasks.recommend import History, Recommend, RecommendData
from tests.verbs.calling import call
from tests.verbs.conftest import settings

pytestmark = pytest.mark.numeric

ITEMS, LENGTH = 12, 5
DRAW = np.random.Generator(np.random.PCG64(0))
KEYS = tuple(f"i{n}" for n in range(ITEMS))
HISTORIES = [DRAW.integers(0, ITEMS, n).tolist() for n in (9, 3, 4, 1, 5, 7, 2, 4)]
DATA = Interactions(tuple(f"u{n}" for n in range(8)), KEYS, KEYS, Ragged.of(HISTORIES))
SMALL: dict[str, Any] = dict(width=8, depth=1, vocab=ITEMS + 1, length=LENGTH, dropout=0.0)
MODELS = {
    "sasrec": sasrec.spec(**SMALL),
    "bert4rec": bert4rec.spec(**SMALL, heads=2, hidden=16),
    "gpt": gpt.spec(**SMALL, heads=2, hidden=16),
    "rnn": rnn.spec(**SMALL, cell="gru"),
}


def made(**more: Any) -> Recommend:
    return Recommend(RecommendData.parse({"length": LENGTH, "negatives": 4, **more}), ItemNames(KEYS, KEYS))


def part(name: str) -> LeaveOneOut:
    return LeaveOneOut(DATA, name)  # type: ignore[arg-type]


def net_of(name: str, task: Recommend | None = None) -> Any:
    return (task or made()).adapt_spec(MODELS[name]).build(seed=1).double().eval()


def stream(net: Any, tokens: list[int]) -> Any:
    """What the model says at each of these tokens, the last of which stands at the last position."""
    at = Coords.span(len(tokens), first=LENGTH - len(tokens))
    with torch.no_grad():
        return net.logits(net(torch.tensor([tokens]), at))[0]


@pytest.mark.parametrize("name", ["sasrec", "gpt", "rnn"])
@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_a_decoder_predicts_every_item_from_those_before_it(name: str, loss: str) -> None:
    task = made(loss=loss)
    net, examples = net_of(name, task), task.augment(task.encode(part("train")), 3, 1)
    users = [0, 2, 4, 5, 6, 7]  # of one item nothing can be learned
    assert examples.users.tolist() == users
    got = task.loss(net, task.batch(examples, np.arange(len(users))), 0.0)
    wanted, starts = 0.0, [0, *examples.rows.ends.tolist()]
    for i, user in enumerate(users):
        n = len(HISTORIES[user])
        row = [item + 1 for item in HISTORIES[user][: n - 2 if n > 2 else n]][-LENGTH - 1 :]
        logits = stream(net, row[:-1])
        assert examples.negatives is not None
        for j, right in enumerate(row[1:]):
            wrong = int(examples.negatives[starts[i] + j + 1])
            assert wrong - 1 not in HISTORIES[user][: n - 2 if n > 2 else n]
            p = logits[j].softmax(0)[right]
            bce = torch.sigmoid(logits[j, right]) * (1 - torch.sigmoid(logits[j, wrong]))
            wanted -= math.log(float(p if loss == "softmax" else bce))
    assert float(got.total.detach()) == pytest.approx(wanted, rel=1e-6)
    assert got.tokens == int(examples.lengths.sum())


def test_windows_belong_to_their_user() -> None:
    examples = made(windows=True, length=3).encode(part("train"))
    assert examples.users.tolist() == [0, 0, 2, 4, 5, 5, 6, 7]
    whole = made(length=50).encode(part("train"))
    assert int(examples.lengths.sum()) == int(whole.lengths.sum())
    row = np.repeat(np.arange(len(examples)), examples.rows.lengths)
    assert examples.negatives is not None
    assert not examples.own.contains(examples.users[row], examples.negatives - 1).any()


def test_an_encoder_fills_masks() -> None:
    task = made(mask_rate=0.4, mask_last=0.0)
    net, examples = net_of("bert4rec", task), task.augment(task.encode(part("train")), 3, 1)
    assert examples.masked is not None
    rows = Ragged(examples.masked.astype(np.int32), examples.rows.ends)
    lengths = examples.rows.lengths
    assert rows.lengths.tolist() == lengths.tolist()
    assert [int(row.sum()) for row in rows] == [max(1, round(0.4 * int(n))) for n in lengths]
    batch = task.batch(examples, np.arange(len(examples)))
    got, wanted = task.loss(net, batch, 0.0), 0.0
    for row, masked in zip(examples.rows, rows, strict=True):
        items = len(row) - 1
        row, masked = row[-LENGTH:], masked[-LENGTH:]
        logits = stream(net, [0 if hidden else int(item) for item, hidden in zip(row, masked, strict=True)])
        losses = [-float(logits[j].log_softmax(0)[row[j]]) for j in np.flatnonzero(masked)]
        wanted += items * float(np.mean(losses))
    assert float(got.total.detach()) == pytest.approx(wanted, rel=1e-6)
    last = task.augment(examples, 1, 1)
    assert (last.masked != examples.masked).any()
    only = made(mask_last=0.999999).augment(examples, 1, 1).masked
    assert only is not None and np.flatnonzero(only).tolist() == (examples.rows.ends - 1).tolist()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("which", ["valid", "test"])
def test_a_target_is_ranked_after_the_whole_history(name: str, which: str) -> None:
    """The newest items are read, an encoder's with a mask behind them; all items of the user but the target are left out."""
    task, net = made(), net_of(name)
    examples = task.encode(part(which))
    counts = count_losses(task, net, examples)
    assert ("perplexity" in counts.scores()) == (name == "bert4rec"), "a likelihood among all items has one"
    assert examples.users.tolist() == [0, 1, 2, 4, 5, 7]
    for i, user in enumerate(examples.users):
        end = len(HISTORIES[user]) - (2 if which == "valid" else 1)
        before, target = HISTORIES[user][:end], HISTORIES[user][end]
        tokens = [item + 1 for item in before]
        logits = stream(net, [*tokens, 0][-LENGTH:] if name == "bert4rec" else tokens[-LENGTH:])[-1, 1:]
        rank = sum(float(logits[j] > logits[target]) for j in range(ITEMS) if j not in before)
        assert counts.rows["mrr"][i].tolist() == pytest.approx([1 / (rank + 1), 1])
        drawn = {int(j) - 1 for j in examples.candidates[i] if j}  # type: ignore[index]
        assert not drawn & {*before, target}
        assert len(drawn) == min(4, ITEMS - len({*before, target}))
        rank = sum(float(logits[j] > logits[target]) for j in drawn)
        assert counts.rows["sampled_mrr"][i].tolist() == pytest.approx([1 / (rank + 1), 1])
    again = count_losses(task, net, examples, tokens=6)
    for metric in counts.rows:
        np.testing.assert_allclose(counts.rows[metric], again.rows[metric])


def test_users_are_sampled_by_the_seed() -> None:
    chosen = [made(eval_users=3, sampling_seed=seed).encode(part("test")).users.tolist() for seed in (1, 1, 2, 3)]
    assert chosen[0] == chosen[1] and len({*map(tuple, chosen)}) > 1
    assert all(len(users) == 3 and sorted(users) == users for users in chosen)


def test_baselines() -> None:
    """By loops: how often an item occurs, and cosines of items that users had in common."""
    task, examples = made(), made().encode(part("test"))
    known = [*map(list, examples.known)]
    scores = score_popularity(examples.known, ITEMS)(examples.users)
    counts = [sum(row.count(item) for row in known) for item in range(ITEMS)]
    assert scores[:, 1:].tolist() == [counts] * len(examples)
    owners = [{user for user, row in enumerate(known) if item in row} for item in range(ITEMS)]

    def cosine(a: int, b: int) -> float:
        return 0.0 if a == b else len(owners[a] & owners[b]) / math.sqrt(max(len(owners[a]) * len(owners[b]), 1))

    near, cosines = find_neighbors(examples.known, ITEMS, 3)
    for item in range(ITEMS):
        best = sorted((cosine(item, other) for other in range(ITEMS)), reverse=True)[:3]
        assert cosines[item].tolist() == pytest.approx(best, abs=1e-6)
        assert [cosine(item, int(other)) for other in near[item]] == pytest.approx(best, abs=1e-6)
    scores = score_item_knn(examples.known, ITEMS, neighbors=ITEMS)(examples.users)
    for row, user in zip(scores, examples.users, strict=True):
        wanted = [sum(cosine(own, item) for own in known[user]) for item in range(ITEMS)]
        assert row[1:].tolist() == pytest.approx(wanted, abs=1e-5)
    found = task.count_baselines(examples)
    assert {*found} == {"popularity", "item-kNN"}
    assert all(found[name]["ndcg@10"].shape == (len(examples), 2) for name in found)


# What users type and read. --------------------------------------------------------------------------------------------

FILMS = ItemNames(
    ("1", "2", "3", "4", "5"), ("Toy Story (1995)", "Matrix, The (1999)", "Heat (1995)", "Emma (1996) [4]", "A; B")
)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("Toy Story (1995); Heat (1995)", [0, 2]),
        ("toy  story;HEAT ; the matrix", [0, 2, 1]),
        ("2\t3", [1, 2]),
        ('["A; B", "The Matrix"]', [4, 1]),
        ("Matrix, The", [1]),
        (" ; ", []),
    ],
)
def test_names_as_people_type_them(typed: str, found: list[int]) -> None:
    assert FILMS.find_all(typed) == found
    assert FILMS.find_all(FILMS.join(found)) == found


def test_an_unknown_item_is_an_error_with_near_names() -> None:
    for typed, message in (
        ("Toy Stori", r"^no item 'Toy Stori' in the data the model learned from; did you mean 'Toy Story \(1995\)'\?$"),
        ("matri", r"did you mean 'Matrix, The \(1999\)'\?$"),
        ("Zardoz", r"; items are called 'Toy Story \(1995\)', .* …, and `;` separates them$"),
    ):
        with pytest.raises(DataError, match=message):
            FILMS.find_all(typed)
    assert ItemNames(("a", "b"), ("Emma (1996)", "Emma (2020)")).find("emma (2020)") == 1
    with pytest.raises(DataError, match=r"did you mean 'Emma \(1996\)' or 'Emma \(2020\)'\?"):
        ItemNames(("a", "b"), ("Emma (1996)", "Emma (2020)")).find("emma")
    assert split_history("[not json; x") == ["[not json", "x"]


def test_the_file_of_items() -> None:
    for names in (FILMS, ItemNames(KEYS, KEYS)):
        again = ItemNames.unpack(names.pack())
        assert (again.keys, again.names) == (names.keys, names.names)
    for content, message in (
        (b"{", r"^items\.json is damaged"),
        (b"[]", r"^items\.json should hold a list of items"),
        (b'{"items": []}', r"^items\.json should hold a list of items"),
        (b'{"items": ["a", "a"]}', r"^items\.json should name each item once, got 2 items, 2 names$"),
        (b'{"items": ["a"], "names": ["b", "c"]}', r"^items\.json should name each item once"),
        (b'{"items": ["a\\u001b[1m"]}', r"^items\.json has a name that cannot be printed"),
    ):
        with pytest.raises(CheckpointError, match=message):
            ItemNames.unpack({"items.json": content})
    with pytest.raises(
        CheckpointError, match=r"^there is no items\.json among config\.json; this is no model of items$"
    ):
        ItemNames.unpack({"config.json": b""})


def test_equal_histories_have_equal_hashes() -> None:
    a, b = History((0, 1), ItemNames(["x", "y"], ["x", "y"])), History((1, 0), ItemNames(["y", "x"], ["y", "x"]))
    assert a == b and hash(a) == hash(b)


@pytest.mark.parametrize("name", MODELS)
def test_outputs(name: str) -> None:
    task, net = made(), net_of(name)
    search = Search(beam=10, n_best=10)
    both = task.run(TorchEngine(net), ["i3; i5", History((0, 1, 2, 3, 4, 5, 6), task.items)], search)
    alone = task.run(TorchEngine(net), ["i3; i5"], search)
    assert [each.text for each in both[0]] == [each.text for each in alone[0]]
    assert len(both[0]) == 10 and len(both[1]) == ITEMS - 7
    assert not {each.text for each in both[0]} & {"i3", "i5"}
    assert sum(math.exp(each.log_prob or 0) for each in both[1]) == pytest.approx(1)
    assert [each.score for each in both[0]] == sorted((each.score for each in both[0]), reverse=True)  # type: ignore[type-var]
    assert both[0][0].more == {"item": both[0][0].text}
    assert both[0][0].explanation[0].startswith(f" 1. {both[0][0].text}")
    assert task.score(TorchEngine(net), ["i3; i5"], [both[0][2].text]) == pytest.approx([both[0][2].log_prob])
    assert task.score(TorchEngine(net), ["i3; i5"], ["i5"]) == [-math.inf]
    again = Recommend(dataclasses.replace(task.settings, repeats=True), task.items)
    assert len(again.run(TorchEngine(net), ["i3; i5"], Search(beam=20, n_best=20))[0]) == ITEMS
    ensemble = task.run(TorchEngine(net, net), ["i3; i5"], search)[0]
    assert [each.text for each in ensemble] == [each.text for each in both[0]]
    with pytest.raises(
        DataError, match=r"^the history has all 12 items; data\.repeats lets them be recommended again$"
    ):
        task.run(TorchEngine(net), ["; ".join(KEYS)], search)
    with pytest.raises(DataError, match=r"^a history should have at least one item; `;` separates several$"):
        task.run(TorchEngine(net), [";"], search)


def test_long_histories_and_what_can_be_looked_at() -> None:
    task = made()
    assert task.find_too_long(["i1; i2", "; ".join(KEYS)]) == [1]
    assert task.explain_cut("; ".join(KEYS)) == "has 12 items, and the model reads 5; the oldest are left out"
    seen = task.forward_pass(net_of("sasrec"), "i3; i5", "i7")
    assert (list(seen.tokens), seen.wanted.tolist()) == (["i3", "i5"], [[6, 8]])
    seen = task.forward_pass(net_of("bert4rec"), "i3; i5", "i7")
    assert (list(seen.tokens), seen.wanted.tolist()) == (["i3", "i5", "[mask]"], [[-100, -100, 8]])
    weights, _, _ = seen.attention(net_of("bert4rec"))
    assert weights["encoder.blocks.0.mix"].shape == (2, 3, 3)


def test_what_is_refused(tmp_path: Path) -> None:
    task = made()
    with pytest.raises(
        SpecError, match=r"^recommendation needs a model with a decoder alone \(model\.family: sasrec\)"
    ):
        task.adapt_spec(transformer.spec(width=8, depth=1, heads=2, hidden=8, vocab=13, length=5))
    with pytest.raises(SpecError, match=r"^the model knows 4 items, and the data has 12$"):
        task.adapt_spec(sasrec.spec(**{**SMALL, "vocab": 5}))
    with pytest.raises(SpecError, match=r"^the model reads 3 items, and data\.length is 5$"):
        task.adapt_spec(sasrec.spec(**{**SMALL, "length": 3}))
    with pytest.raises(SpecError, match=r"^data\.loss: bce compares next items, and an encoder fills masks"):
        made(loss="bce").adapt_spec(MODELS["bert4rec"])
    for data, message in (
        ({"metrics": []}, r"`metrics` should name at least one score"),
        ({"metrics": ["hr@7"]}, r"no metric 'hr@7'"),
        ({"columns": ["user"]}, r"columns should be those of user, item and perhaps time, got \['user'\]"),
        ({"length": 1}, r"length should be at least 2, an item and one to predict, got 1"),
    ):
        with pytest.raises(SpecError, match=message):
            RecommendData.parse(data)
    with pytest.raises(DataError, match=r"^no training data; name a file with lines `user item \[time\]`"):
        Recommend.read(RecommendData(), 1)
    with pytest.raises(DataError, match=r"^the last item but one of each user is for validation"):
        Recommend.configure_data(["a"], ["b"])
    path = tmp_path / "x.txt"
    for text, message in (
        ("a x\na y\n", r"^no user in .*x\.txt has three items, of which two are held out; lower data\.min_user"),
        ("a x\na y\na z\n", r"^no user in .*x\.txt has four items, of which two are held out and one is predicted$"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            Recommend.read(RecommendData(train=(str(path),)), 1)
    path.write_text("a i1\na i2\na i3\na new\n")
    with pytest.raises(
        DataError, match=r"^1 of 4 items are not in the data the model learned from, such as 'new'; use the"
    ):
        task.encode(Recommend.read_test(task.settings, [str(path)]))


def test_from_files_to_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new user would: one command to train, one to use, one to score; then BERT4Rec by one setting."""
    monkeypatch.chdir(tmp_path)
    rows = [(user, (user + step) % 9, step) for user in range(40) for step in range(6)]
    lines = "".join(f"{user},{item},5.0,{time}\n" for user, item, time in rows)
    Path("ratings.csv.gz").write_bytes(gzip.compress(f"userId,movieId,rating,timestamp\n{lines}".encode()))
    Path("movies.csv").write_text(
        "movieId,title,genres\n" + "".join(f"{i},Film {'abcdefghi'[i]} (200{i}),x\n" for i in range(9))
    )
    quick = settings(
        "train.epochs=25", "train.batch_tokens=40", "train.schedule.lr=0.03", "model.dropout=0.1", "model.width=16"
    )
    said = call("train", "recommend", "ratings.csv.gz", "movies.csv", "--quiet", *quick)
    assert said.code == 0, said.err
    said = call("run", "runs/recommend", "Film A; film b (2001); FILM C")
    assert said.lines[0] == "Film d (2003)"
    assert said.lines[1].split()[:4] == ["1.", "Film", "d", "(2003)"] and said.lines[1].endswith("%")
    said = call("run", "runs/recommend", "--json", "--n-best", "2", stdin=b"film a\nFilm Z\n\n")
    best, bad, empty = map(json.loads, said.lines)
    assert len(best["outputs"]) == 2 and {"text", "score", "log_prob", "item"} <= best["outputs"][0].keys()
    assert bad["error"].startswith("no item 'Film Z' in the data the model learned from; did you mean 'Film ")
    assert (said.code, empty["outputs"]) == (2, [])
    said = call(
        "eval", "runs/recommend", "ratings.csv.gz", "--samples", "10", "--metric", "hr@5", "--metric", "sampled_mrr"
    )
    assert [line.split("|")[1].strip() for line in said.lines[2:5]] == [
        "runs/recommend",
        "popularity (baseline)",
        "item-kNN (baseline)",
    ]
    told = regard.evaluate("runs/recommend", "ratings.csv.gz", samples=10).plain()
    assert told["models"][0]["scores"]["hr@10"] == 1.0  # type: ignore[index]
    assert [each["model"] for each in told["models"]][1:] == ["popularity (baseline)", "item-kNN (baseline)"]  # type: ignore[index,attr-defined]
    quick = settings("train.steps=3", "train.schedule.warmup=1", "model.family=bert4rec")
    said = call("train", "recommend", "ratings.csv.gz", "--out", "runs/bert4rec", "--quiet", *quick)
    assert said.code == 0, said.err
    assert len(call("run", "runs/bert4rec", "0; 1; 2").lines) == 1 + 6
