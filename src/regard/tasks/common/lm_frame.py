"""Texts to tokens and back, for models that continue texts.

A user of a language model needs this besides the model itself: how prompts begin, and what happens when the context is full.
Nothing here needs torch, so that a model can run without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from regard.decode.decode_request import Constraints, Draw, Request, SpecialTokens
from regard.decode.engine import Engine, stream_tokens
from regard.decode.search import Search
from regard.decode.stream_text import stream_text
from regard.errors import DataError, SpecError
from regard.tasks.common.task import EvalSet, Output, RunOptions
from regard.text import Tokenizer


class LmFrame:
    """Continues texts that begin with `front`."""

    Options: type[RunOptions] = RunOptions
    tokenizer: Tokenizer

    def __init__(
        self, tokenizer: Tokenizer, front: Sequence[int], banned: Sequence[int], context: int | None = None
    ) -> None:
        """Tokens `banned` are never written, besides the start mark and padding: `<unk>`, and what else there is no text for.

        `context` is the number of tokens that are read; None: as many as the model can.
        """
        self.tokenizer, self._front, self._banned, self._context = tokenizer, [*front], [*banned], context

    def limit_room(self, room: int | None) -> int | None:
        """The number of tokens that are read, of those that the model has room for; None: any number."""
        return self._context if room is None else min(room, self._context or room)

    def eval_sets(self, raw: Any) -> list[EvalSet]:
        """Inputs with their references; none: a continuation has no reference."""
        return []

    def run(
        self, engine: Engine, inputs: Sequence[str], search: Search, options: RunOptions = RunOptions()
    ) -> list[list[Output]]:
        """The continuation of each input, which is not repeated."""
        prompts = self._encode_prompts(inputs)
        found = self.continue_prompts(engine, prompts, search, options)
        return [
            [Output(self._make_decoder(prompt, text)(ids), total / search.divisor(max(len(ids), 1)), total)]
            for text, prompt, (ids, total) in zip(inputs, prompts, found, strict=True)
        ]

    def continue_prompts(
        self,
        engine: Engine,
        prompts: Sequence[list[int]],
        search: Search,
        options: RunOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[tuple[list[int], float]]:
        """New tokens after each prompt, which begin with its prefix, and their log-probability. If the context is full, the
        model continues from its later half.

        Sampled tokens depend on the seed and on the number of the prompt, counted from `options.first`.
        """
        most, room = self._limits(engine, search)
        written, totals = [list[int]() for _ in prompts], [0.0] * len(prompts)
        active = list(range(len(prompts))) if most else []
        while active:
            left = most - min(len(written[i]) for i in active)
            now = [i for i in active if len(written[i]) == most - left]  # the others wait for these
            read = [self._truncate(prompts[i] + written[i], room) for i in now]
            asked = [left if room is None else min(left, room - len(prompt) + 1) for prompt in read]
            forced = None
            if prefixes is not None:
                forced = [prefixes[i][most - left :][:count] for i, count in zip(now, asked, strict=True)]
            draw = Draw([options.first + i for i in now], most - left)
            found = engine.decode(self.ask(read, dataclasses.replace(search, max_extra=left), draw, prefixes=forced))
            for i, count, (best,) in zip(now, asked, found, strict=True):
                written[i] += best.tokens
                totals[i] += best.log_prob
                if len(best.tokens) < count or len(written[i]) >= most:
                    active.remove(i)
        return list(zip(written, totals, strict=True))

    def stream(self, engine: Engine, text: str, search: Search, options: RunOptions = RunOptions()) -> Iterator[str]:
        """The continuation of one text in pieces, as they are generated."""
        most, room = self._limits(engine, search)
        (prompt,) = self._encode_prompts([text])

        def tokens() -> Iterator[int]:
            written: list[int] = []
            while len(written) < most:
                before, left = len(written), most - len(written)
                read = self._truncate(prompt + written, room)
                once = dataclasses.replace(search, max_extra=left)
                for token in stream_tokens(engine, self.ask([read], once, Draw([options.first], before))):
                    written.append(token)
                    yield token
                asked = left if room is None else min(left, room - len(read) + 1)
                if len(written) - before < asked:
                    return

        return stream_text(tokens(), self._make_decoder(prompt, text))

    def stream_answer(
        self,
        engine: Engine,
        prompt: list[int],
        search: Search,
        options: RunOptions = RunOptions(),
        ends: Collection[int] = (),
    ) -> Iterator[str]:
        """Yield what a model writes after the tokens of a prompt, in pieces, up to its end mark or one of `ends`.

        Unlike `stream`, it reads the whole prompt or refuses it, and ends where the context does. Beam search gives its
        text as one piece.
        """
        most, room = self._limits(engine, search)
        if room is not None and len(prompt) > room:
            raise DataError(f"the prompt has {len(prompt):,} tokens, and the model reads {room:,}; shorten it")
        most = most if room is None else min(most, room - len(prompt) + 1)
        search = dataclasses.replace(search, max_extra=most, max_length=None)
        request = self.ask([prompt], search, Draw([options.first]), ends=ends)

        def tokens() -> Iterator[int]:
            if request.rows > 1:
                ((best, *_),) = engine.decode(request)
                written: Iterator[int] = iter(best.tokens)
            else:
                written = stream_tokens(engine, request)
            for token in written:
                if token in ends:
                    return
                yield token

        return stream_text(tokens(), self._make_decoder(prompt))

    def ask(
        self,
        prompts: Sequence[Sequence[int]],
        search: Search,
        draw: Draw,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        ends: Collection[int] = (),
    ) -> Request:
        """The request for what follows prompts. `<s>`, `<pad>` and banned tokens are not written, unless they are `ends`."""
        tokenizer = self.tokenizer
        bos, pad = (tokenizer.eos if token in ends else token for token in (tokenizer.bos, tokenizer.pad))
        special = SpecialTokens(bos, tokenizer.eos, pad, tokenizer.size)
        banned = [token for token in self._banned if token not in ends]
        return Request(prompts, search, special, Constraints(banned, prefixes), draw)

    def _limits(self, engine: Engine, search: Search) -> tuple[int, int | None]:
        """The number of tokens to write, and how many the models can see; None: any number."""
        if search.n_best > 1:
            raise SpecError(
                f"a language model gives one continuation, got n_best={search.n_best}; for others, use sample with other seeds"
            )
        most = search.max_extra if search.max_length is None else min(search.max_extra, search.max_length)
        return most, self.limit_room(engine.room)

    def _encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts as beginnings of documents, after the special tokens that the tokenizer puts before every text."""
        template = self.tokenizer.template
        front = self._front or ([] if template is None else template.opening)
        return [[*front, *ids] for ids in self.tokenizer.encode_all(texts)]

    def _make_decoder(self, prompt: list[int], text: str | None = None) -> Callable[[list[int]], str]:
        """Return what decodes the tokens after a prompt, which is the tokens of `text`.

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
        """Return what the model reads: everything, or the last half of its context if that is exceeded; never nothing."""
        ids = ids if room is None or len(ids) <= room else ids[-max(room // 2, 1) :]
        return ids or [self.tokenizer.bos]
