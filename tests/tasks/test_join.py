"""Outputs for the pieces of a text as one: words are counted in the whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regard.tasks.common.join import join_outputs
from regard.tasks.common.task import Output
from regard.text import Chars, Tokenizer
from regard.text.sentence_split import split_to_fit

TOKENIZER = Tokenizer.train(["abc 。"], Chars())


@given(st.text("abc 。  ", min_size=1), st.integers(1, 8))
def test_links_lead_to_the_words_that_hold_what_was_read(text: str, room: int) -> None:
    """Outputs repeat what they are of, word by word."""
    parts = list(split_to_fit(TOKENIZER, text, room))
    outputs = [[Output(part, -1.0, -1.0, {"alignment": [[i, i] for i in range(len(part.split()))]})] for part in parts]
    if len(parts) < 2:
        return
    (joined,) = join_outputs(text, parts, outputs)
    read, written = text.split(), joined.text.split()
    assert [j for _, j in joined.more["alignment"]] == list(range(len(written)))
    assert all(written[j] in read[i] for i, j in joined.more["alignment"])
    assert joined.score == joined.log_prob == -len(parts)
    came = ["".join(written[j] for i, j in joined.more["alignment"] if i == n) for n in range(len(read))]
    assert came == read, "every word is made of what is linked to it"
