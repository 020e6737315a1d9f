"""A model behind a server: `regard run http://…`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from regard.errors import DataError, SpecError, name_extra
from regard.serve.server_settings import Limits
from regard.tasks.common.task import Output

BATCH = 32
"""Lines in a request."""
KEY = "REGARD_API_KEY"
"""The environment variable with the key."""
SECONDS = 120.0
STATED = ("items", "characters", "body")
"""Limits that a server states, and that a request is made by."""
BYTES_PER_CHARACTER, MORE_BYTES = 12, 1 << 12
"""Maximum bytes of a character in JSON, and those of what else is in a request."""


def is_address(model: str) -> bool:
    """True if this names a server and not a folder."""
    return model.startswith(("http://", "https://"))


def read_glossary(path: Path) -> dict[str, str]:
    """The terms of a glossary file, to be sent."""
    from regard.data.glossary import Glossary

    return dict(Glossary.load(path).entries)


class RemoteModel:
    """Runs texts on a server; the path of the address, if there is one, names the model."""

    def __init__(self, address: str) -> None:
        try:
            import httpx
        except ImportError:
            raise SpecError(f"running on a server needs httpx; {name_extra('serve')}") from None
        try:
            parts = urlsplit(address)
            parts.port  # noqa: B018  (checked when it is read)
        except ValueError as error:
            raise SpecError(
                f"{address} is not the address of a server ({error}); it should be like http://127.0.0.1:8000"
            ) from None
        if not parts.hostname:
            raise SpecError(f"{address} names no server; it should be like http://127.0.0.1:8000")
        self._model = parts.path.strip("/") or None
        key = os.environ.get(KEY)
        self._http = httpx.Client(
            base_url=f"{parts.scheme}://{parts.netloc}", timeout=SECONDS, trust_env=False,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
        )  # fmt: skip

    def run_lazily(
        self,
        inputs: Iterable[str],
        *,
        to: str | None = None,
        prefix: str | None = None,
        glossary: Mapping[str, str] | None = None,
        batch: int = BATCH,
        options: Mapping[str, object] | None = None,
        notify: Callable[[str], None] = lambda text: None,
    ) -> Iterator[list[tuple[object, list[Output]]]]:
        """Each input with its outputs, a batch at a time, in order; the connection is closed after the last.

        A batch is sent in as many requests as the limits of the server ask for. An input that is longer than they allow has a
        refusal for an output.
        """
        rest, term = iter(inputs), dict(glossary or {})
        more: dict[str, object] = {"to": to, "prefix": prefix, "glossary": None if glossary is None else term}
        fixed: dict[str, object] = {"options": dict(options or {}), "model": self._model}
        fixed |= {name: value for name, value in more.items() if value is not None}
        beside = sum(map(len, [to or "", prefix or "", *term, *term.values()]))
        number = 0
        with self._http:
            items, characters = self._read_limits()
            while some := list(islice(rest, min(batch, BATCH))):
                for group in divide(some, items, room := characters - beside):
                    number += len(group)
                    if len(group[0]) > room:
                        length = len(group[0]) + beside
                        refusal = f"the server reads at most {characters:,} characters at a time, got {length:,}"
                        notify(f"input {number}: {refusal}")
                        yield [(group[0], [Output("", error=refusal)])]
                        continue
                    found = self._post("/run", {"inputs": group, **fixed})
                    yield list(zip(group, map(read_outputs, found["outputs"]), strict=True))

    def _read_limits(self) -> tuple[int, int]:
        """The number of texts and characters that a request may have; a server that does not say has the usual limits."""
        status, found = self._ask("GET", "/limits", None)
        known = Limits()
        if status == 200 and isinstance(found, dict):
            known = replace(known, **{name: found[name] for name in STATED if isinstance(found.get(name), int)})
        return known.items, min(known.characters, (known.body - MORE_BYTES) // BYTES_PER_CHARACTER)

    def _post(self, path: str, body: Mapping[str, object]) -> Mapping[str, Sequence[Sequence[Mapping[str, object]]]]:
        status, found = self._ask("POST", path, body)
        if status != 200 or not isinstance(found, dict) or "outputs" not in found:
            hint = f"; set {KEY}" if status == 401 else ""
            words = found.get("error") if isinstance(found, dict) else None
            raise DataError(f"{self._http.base_url} refuses ({status}): {words}{hint}")
        return found

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None) -> tuple[int, object]:
        """Status and content of an answer."""
        import httpx

        try:
            answer = self._http.request(method, path, json=body)
            return answer.status_code, answer.json()
        except httpx.HTTPError as error:
            raise DataError(f"{self._http.base_url} does not answer: {error}") from None
        except ValueError:
            raise DataError(f"{self._http.base_url} is no regard server: its answer is not JSON") from None


def divide(texts: Sequence[str], items: int, characters: int) -> Iterator[list[str]]:
    """Divide texts into groups of at most so many items and characters, in order; a text that is too long is a group."""
    group, count = list[str](), 0
    for text in texts:
        if group and (len(group) == items or count + len(text) > characters):
            yield group
            group, count = [], 0
        group.append(text)
        count += len(text)
    if group:
        yield group


def read_outputs(rows: Sequence[Mapping[str, object]]) -> list[Output]:
    """The outputs of one input, from JSON."""
    own = ("text", "score", "log_prob", "error")
    return [
        Output(
            str(row.get("text", "")), row.get("score"), row.get("log_prob"),  # type: ignore[arg-type]
            {name: value for name, value in row.items() if name not in own}, error=row.get("error"),  # type: ignore[arg-type]
        )
        for row in rows
    ]  # fmt: skip
