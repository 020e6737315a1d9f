"""Texts to tokens and back, for models that continue texts.

What a user of a language model needs besides the model itself: how prompts begin, and what happens when the context is full.
Nothing here needs torch, so that a model can run without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Generic, TypeVar

from regard.decode.decode_request import Constraints, Draw, Hypothesis, SpecialTokens
from regard.decode.search import Search
from regard.decode.stream_text import stream_text
from regard.errors import DataError, SpecError
from regard.tasks.common.task import Output, RunOptions
from regard.text import Tokenizer

N = TypeVar("N")
"""What generates: nets of torch, or engines."""


class LmFrame(Generic[N]):
    """Continues texts that begin with `front`; a child says how tokens are generated."""

    Options = RunOptions
    tokenizer: Tokenizer
    _front: list[int]
    _banned: list[int]
    """Tokens that are never written, besides the start mark and padding: `<unk>`, and what else a task has no text for."""

    def write_tokens(
        self,
        nets: Sequence[N],
        prompts: Sequence[list[int]],
        search: Search,
        special: SpecialTokens,
        constraints: Constraints,
        draw: Draw,
    ) -> list[list[Hypothesis]]:
        """The best continuation of each prompt."""
        raise NotImplementedError

    def stream_tokens(
        self,
        nets: Sequence[N],
        prompt: list[int],
        search: Search,
        special: SpecialTokens,
        constraints: Constraints,
        draw: Draw,
    ) -> Iterator[int]:
        """The tokens of the continuation of a prompt, as they are written."""
        raise NotImplementedError

    def rooms(self, nets: Sequence[N]) -> list[int | None]:
        """The number of tokens that each model can see; None: any number."""
        raise NotImplementedError

    def run(
        self, nets: Sequence[N], inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """The continuation of each input, which is not repeated."""
        prompts = self._encode_prompts(inputs)
        found = self.continue_prompts(nets, prompts, search, options)
        return [
            [Output(self._make_decoder(prompt, text)(ids), total / search.divisor(max(len(ids), 1)), total)]
            for text, prompt, (ids, total) in zip(inputs, prompts, found, strict=True)
        ]

    def continue_prompts(
        self,
        nets: Sequence[N],
        prompts: Sequence[list[int]],
        search: Search,
        options: RunOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[tuple[list[int], float]]:
        """New tokens after each prompt, which begin with its prefix, and their log-probability. If the context is full, the
        model continues from its later half.

        Sampled tokens depend on the seed and on the number of the prompt, counted from `options.first`.
        """
        most, room = self._limits(nets, search)
        written, totals = [list[int]() for _ in prompts], [0.0] * len(prompts)
        special, constraints = self._rules()
        active = list(range(len(prompts))) if most else []
        while active:
            left = most - min(len(written[i]) for i in active)
            now = [i for i in active if len(written[i]) == most - left]  # the others wait for these
            read = [self._truncate(prompts[i] + written[i], room) for i in now]
            asked = [left if room is None else min(left, room - len(prompt) + 1) for prompt in read]
            if prefixes is not None:
                forced = [prefixes[i][most - left :][:count] for i, count in zip(now, asked, strict=True)]
                constraints = dataclasses.replace(constraints, prefixes=forced)
            draw = Draw([options.first + i for i in now], most - left)
            once = dataclasses.replace(search, max_extra=left)
            found = self.write_tokens(nets, read, once, special, constraints, draw)
            for i, count, (best,) in zip(now, asked, found, strict=True):
                written[i] += best.tokens
                totals[i] += best.log_prob
                if len(best.tokens) < count or len(written[i]) >= most:
                    active.remove(i)
        return list(zip(written, totals, strict=True))

    def stream(self, nets: Sequence[N], text: str, search: Search, options: RunOptions = RunOptions()) -> Iterator[str]:
        """The continuation of one text in pieces, as they are generated."""
        most, room = self._limits(nets, search)
        (prompt,), rules = self._encode_prompts([text]), self._rules()

        def tokens() -> Iterator[int]:
            written: list[int] = []
            while len(written) < most:
                before, left = len(written), most - len(written)
                read = self._truncate(prompt + written, room)
                draw = Draw([options.first], before)
                for token in self.stream_tokens(nets, read, dataclasses.replace(search, max_extra=left), *rules, draw):
                    written.append(token)
                    yield token
                asked = left if room is None else min(left, room - len(read) + 1)
                if len(written) - before < asked:
                    return

        return stream_text(tokens(), self._make_decoder(prompt, text))

    def stream_answer(
        self,
        nets: Sequence[N],
        prompt: list[int],
        search: Search,
        options: RunOptions = RunOptions(),
        ends: Collection[int] = (),
    ) -> Iterator[str]:
        """What a model writes after the tokens of a prompt, in pieces, up to its end mark or one of `ends`.

        Unlike `stream`, it reads the whole prompt or refuses it, and ends where the context does. Beam search gives its
        text as one piece.
        """
        most, room = self._limits(nets, search)
        if room is not None and len(prompt) > room:
            raise DataError(f"the prompt has {len(prompt):,} tokens, and the model reads {room:,}; shorten it")
        most = most if room is None else min(most, room - len(prompt) + 1)
        search = dataclasses.replace(search, max_extra=most, max_length=None)
        rules, draw = self._rules(ends), Draw([options.first])

        def tokens() -> Iterator[int]:
            if search.beam > 1 and not search.sample:
                ((best, *_),) = self.write_tokens(nets, [prompt], search, *rules, draw)
                written: Iterator[int] = iter(best.tokens)
            else:
                written = self.stream_tokens(nets, prompt, search, *rules, draw)
            for token in written:
                if token in ends:
                    return
                yield token

        return stream_text(tokens(), self._make_decoder(prompt))

    def _rules(self, ends: Collection[int] = ()) -> tuple[SpecialTokens, Constraints]:
        """Which tokens are special, and which are never written: `<s>`, `<pad>` and those banned, unless they are `ends`."""
        tokenizer = self.tokenizer
        bos, pad = (tokenizer.eos if token in ends else token for token in (tokenizer.bos, tokenizer.pad))
        return SpecialTokens(bos, tokenizer.eos, pad, tokenizer.size), Constraints(
            [token for token in self._banned if token not in ends]
        )

    def _limits(self, nets: Sequence[N], search: Search) -> tuple[int, int | None]:
        """The number of tokens to write, and how many the models can see; None: any number."""
        if search.n_best > 1:
            raise SpecError(
                f"a language model gives one continuation, got n_best={search.n_best}; for others, use sample with other seeds"
            )
        most = search.max_extra if search.max_length is None else min(search.max_extra, search.max_length)
        rooms = self.rooms(nets)
        return most, min((room for room in rooms if room is not None), default=None)

    def _encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts as beginnings of documents, after the special tokens that the tokenizer puts before every text."""
        template = self.tokenizer.template
        front = self._front or ([] if template is None else template.opening)
        return [[*front, *ids] for ids in self.tokenizer.encode_all(texts)]

    def _make_decoder(self, prompt: list[int], text: str | None = None) -> Callable[[list[int]], str]:
        """What decodes the tokens after a prompt, which is the tokens of `text`.

        The tokens alone would not tell whether a space comes first.
        """
        before = self.tokenizer.decode(prompt)
        starts = [before] if text is None else [text, before]

        def decode(ids: list[int]) -> str:
            whole = self.tokenizer.decode(prompt + ids)
            said = next((start for start in starts if whole.startswith(start)), None)
            return self.tokenizer.decode(ids) if said is None else whole[len(said) :]

        return decode

    def _truncate(self, ids: list[int], room: int | None) -> list[int]:
        """What the model reads: everything, or the last half of its context if that is exceeded; never nothing."""
        ids = ids if room is None or len(ids) <= room else ids[-max(room // 2, 1) :]
        return ids or [self.tokenizer.bos]
