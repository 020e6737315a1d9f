"""Files of interactions as they come, in order, with names; bad lines by number; rare users and items; leave-one-out."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from regard.data.interactions import Interactions, read_interactions
from regard.data.leave_one_out import LeaveOneOut, cut_rows, cut_windows
from regard.data.ragged import Ragged
from regard.errors import DataError

WANTED = {"ann": ["x", "y", "z"], "bob": ["z", "x"]}
FILES = {
    "a.txt": "ann x\nann y\nbob z\nann z\nbob x\n",
    "timed.txt": "ann y 2\nann x 1\nbob z 1\nann z 3\n\nbob x 5\n",
    "rated.data": "ann\ty\t5\t20\nann\tx\t1\t10\nbob\tz\t3\t1\nann\tz\t4\t30\nbob\tx\t5\t2\n",
    "ratings.dat": "ann::y::5::20\nann::x::1::10\nbob::z::3::1\nann::z::4::30\nbob::x::5::2\n",
    "movielens.csv": "userId,movieId,rating,timestamp\nann,y,4.0,20\nann,x,4.0,10\nbob,z,1,1\nann,z,1,30\nbob,x,1,2\n",
    "amazon.csv": "parent_asin,user_id,rating,timestamp\ny,ann,4.0,20\nx,ann,4.0,10\nz,bob,1,1\nz,ann,1,30\nx,bob,1,2\n",
    "headed.inter": "user_id:token\titem_id:token\ttimestamp:float\nann\ty\t2\nann\tx\t1\nbob\tz\t1\nann\tz\t3\nbob\tx\t5\n",
    "headed.txt": "user item\nann x\nann y\nbob z\nann z\nbob x\n",
    "words.csv": "ann,x\nann,y\nbob,z\nann,z\nbob,x\n",
    "bare.csv": "ann,y,4.0,20\nann,x,4.0,10\nbob,z,1,1\nann,z,1,30\nbob,x,1,2\n",
    "dates.tsv": "user\titem\tdate\nann\ty\t2020-01-02\nann\tx\t2020-01-01\nbob\tz\t2019-01-01\nann\tz\t2021-01-01T10:00\n"
    "bob\tx\t2020-01-01\n",
    "recbole.tsv": "user_id:token\titem_id:token\ttimestamp:float\nann\ty\t2\nann\tx\t1\nbob\tz\t1\nann\tz\t3\nbob\tx\t5\n",
}


def told(found: Interactions) -> dict[str, list[str]]:
    return {user: [found.items[i] for i in row] for user, row in zip(found.users, found.histories, strict=True)}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_files_as_they_come(tmp_path: Path, name: str, packed: bool) -> None:
    path = tmp_path / f"{name}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(FILES[name].encode()) if packed else FILES[name].encode())
    assert told(read_interactions([str(path)])) == WANTED


def test_times_of_several_files_and_ties(tmp_path: Path) -> None:
    """Equal times keep the order of the file."""
    for name, text in (("a.txt", "ann x 5\nann y 5\n"), ("b.txt", "ann z 1\n")):
        (tmp_path / name).write_text(text)
    both = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    assert told(read_interactions(both)) == {"ann": ["z", "x", "y"]}
    (tmp_path / "b.txt").write_text("ann z\n")
    with pytest.raises(DataError, match=r"a\.txt has times and .*b\.txt has none; give all files times, or none$"):
        read_interactions(both)


def test_titles(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(FILES["movielens.csv"])
    (tmp_path / "movies.csv").write_text(
        'movieId,title,genres\nx,"Matrix,  The",Action\ny,Emma,A\nz,Emma,A\nw,Other,A\n'
    )
    found = read_interactions([str(tmp_path / name) for name in ("r.csv", "movies.csv")])
    assert dict(zip(found.items, found.names, strict=True)) == {"x": "Matrix, The", "y": "Emma [y]", "z": "Emma [z]"}
    (tmp_path / "odd.csv").write_text("who,what\nann,x\n")
    both = [str(tmp_path / name) for name in ("odd.csv", "movies.csv")]
    assert read_interactions(both, ("who", "what")).names == ("Matrix, The",), "the columns are those of interactions"
    (tmp_path / "movies.csv").write_text("movieId,title\n1,Emma\n2,Other\n")
    with pytest.raises(
        DataError, match=r"^none of the 3 items, such as 'y', is in .*movies\.csv, which has '1'; leave it"
    ):
        read_interactions([str(tmp_path / name) for name in ("r.csv", "movies.csv")])


def test_columns_by_name_and_place(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("when,what,who,more\n2,y,ann,1\n1,x,ann,1\n1,z,bob,1\n3,z,ann,1\n5,x,bob,1\n")
    assert told(read_interactions([str(path)], ("who", "what", "when"))) == WANTED
    plain = tmp_path / "odd.dat"
    plain.write_text(path.read_text().replace(",", "::"))
    assert told(read_interactions([str(plain)], ("who", "what", "when"))) == WANTED
    plain.write_text("who::what\nann::x\nann::y\nbob::z\nann::z\nbob::x\n")
    assert told(read_interactions([str(plain)], ("who", "what"))) == WANTED
    with pytest.raises(DataError, match=r"odd\.csv has no column 'whom'; did you mean 'who'\?"):
        read_interactions([str(path)], ("whom", "what"))
    for ending in (".csv", ".tsv"):
        path.with_suffix(ending).with_stem("blank").write_text("\nuser,item\nann,x\n".replace(",", "\t"))
        with pytest.raises(DataError, match=rf"blank{ending}, line 1 is empty; a table begins with its header"):
            read_interactions([str(path.with_suffix(ending).with_stem("blank"))])
    with pytest.raises(DataError, match=r"odd\.csv has no column 9; its first line has 4"):
        read_interactions([str(path)], (9, 1))
    with pytest.raises(
        DataError, match=r"line 1: no columns of users and items among 'when', 'what', 'who', 'more'; set"
    ):
        read_interactions([str(path)])
    assert told(read_interactions([str(path)], (3, 2, 1))) == WANTED, "a header, also where columns have numbers"
    plain = tmp_path / "odd.txt"
    plain.write_text("".join(f"{line}\n" for line in ("y ann 2", "x ann 1", "z bob 1", "z ann 3", "x bob 5")))
    assert told(read_interactions([str(plain)], (2, 1, 3))) == WANTED


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.txt", "ann x\nann\n", r"x\.txt, line 2: 1 fields, but the first line has 2: 'ann'$"),
        ("x.txt", "ann x 1\n\nann y soon\n", r"line 3: a time should be a number or a date such as 2018-09-26, got 'soon'$"),
        ("x.txt", "ann x nan\n", r"x\.txt, line 1: a time should be a number"),
        ("x.txt", "a b c d e\n", r"line 1: a line should be `user item`, .* or `user item rating time`, got 'a b c d e'$"),
        ("x.csv", "userId,movieId\nann,x\nann,\n", r"x\.csv, line 3: a user and an item should be there, got 'ann' and ''$"),
        ("x.csv", "userId,movieId\nann,x\nann\n", r"x\.csv, line 3: 1 columns, but the first line has 2$"),
        ("x.csv", "movieId,title\nx,The X\n", r"^there are no interactions in .*x\.csv; a line should have a user"),
        ("x.csv", "person,thing\n1,7\n1,8\n", r"x\.csv, line 1: no columns of users and items among 'person', 'thing'; set"),
        ("x.csv", "userId,stars\nann,x\n", r"x\.csv, line 1: no columns of users and items among 'userId', 'stars'; set"),
        ("x.tsv", "reader\tbook_id\nann\tx\n", r"x\.tsv, line 1: no columns of users and items among 'reader', 'book_id'; set"),
        ("x.txt", "person thing\n1 7\n1 8\n", r"x\.txt, line 1: no columns of users and items among 'person', 'thing'; set"),
        ("x.txt", "a film stars\n1 7 3\n", r"x\.txt, line 1: no columns of users and items among 'a', 'film', 'stars'; set"),
        ("x.txt", "", r"x\.txt is empty"),
        ("x.csv", "user\rId,movieId\nann,x\n", r"x\.csv, line 1: not CSV: new-line character seen in unquoted field$"),
        ("x.jsonl", "{}\n", r"x\.jsonl: interactions are read from \.csv, \.tsv or plain text; convert it to one of them$"),
    ],
)  # fmt: skip
def test_bad_lines_have_numbers(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_interactions([str(tmp_path / name)])


def test_rare_users_and_items_are_counted_once(tmp_path: Path) -> None:
    """As published: whoever is frequent at first stays, even with what is left."""
    path = tmp_path / "a.txt"
    path.write_text("ann x\nann y\nann z\nbob x\nbob w\ncat x\ncat y\n")
    found = read_interactions([str(path)])
    assert told(found.keep_frequent(min_user=1, min_item=1)) == told(found)
    assert told(found.keep_frequent(min_user=2, min_item=2)) == {"ann": ["x", "y"], "bob": ["x"], "cat": ["x", "y"]}
    assert told(found.keep_frequent(min_user=3, min_item=1)) == {"ann": ["x", "y", "z"]}
    assert found.fingerprint != found.keep_frequent(min_user=3, min_item=1).fingerprint


def test_leave_one_out() -> None:
    names = tuple("abcdefgh")
    found = Interactions(("u0", "u1", "u2", "u3"), names, names, Ragged.of([[0, 1, 2, 3, 4], [5], [1, 2], [7, 6, 5]]))
    parts = {part: LeaveOneOut(found, part) for part in ("train", "valid", "test")}  # type: ignore[arg-type]
    assert [list(row) for row in parts["train"].histories()] == [[0, 1, 2], [5], [1, 2], [7]]
    assert [list(row) for row in parts["valid"].histories()] == [[0, 1, 2], [5], [1, 2], [7]]
    assert [list(row) for row in parts["test"].histories()] == [[0, 1, 2, 3], [5], [1, 2], [7, 6]]
    assert [parts[part].users.tolist() for part in parts] == [[0, 2], [0, 3], [0, 3]]
    users = np.array([0, 3])
    assert [parts[part].targets(users).tolist() for part in ("valid", "test")] == [[3, 6], [4, 5]]


def test_cut_rows() -> None:
    rows = Ragged.of([[1, 2, 3], [], [4, 5], [6]])
    cut = cut_rows(rows, np.array([1, 0, 0, 0]), np.array([3, 0, 1, 1]))
    assert [list(row) for row in cut] == [[2, 3], [], [4], [6]]


def test_windows_predict_each_item_once() -> None:
    rows = Ragged.of([[1, 2, 3, 4, 5, 6], [7, 8], [9, 10, 11, 12], [13]])
    source, cut = cut_windows(rows, 2)
    assert [list(row) for row in cut] == [[4, 5, 6], [2, 3, 4], [1, 2], [7, 8], [10, 11, 12], [9, 10], [13]]
    assert source.tolist() == [0, 0, 0, 1, 2, 2, 3]
    assert sorted(item for row in cut for item in row[1:]) == [2, 3, 4, 5, 6, 8, 10, 11, 12]
