"""A model behind a server: `regard run http://…`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from regard.errors import DataError, SpecError, name_extra
from regard.tasks.common.task import Output

BATCH = 32
"""Lines in a request."""
KEY = "REGARD_API_KEY"
"""The environment variable with the key."""
SECONDS = 120.0


def is_address(model: str) -> bool:
    """Whether this names a server and not a folder."""
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
        parts = urlsplit(address)
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
    ) -> Iterator[list[tuple[object, list[Output]]]]:
        """Each input with its outputs, a batch at a time, in order; the connection is closed after the last."""
        rest = iter(inputs)
        with self._http:
            while some := list(islice(rest, min(batch, BATCH))):
                body = {"inputs": some, "options": dict(options or {}), "model": self._model}
                more = {"to": to, "prefix": prefix, "glossary": None if glossary is None else dict(glossary)}
                found = self._post("/run", body | {name: value for name, value in more.items() if value is not None})
                yield list(zip(some, map(read_outputs, found["outputs"]), strict=True))

    def _post(self, path: str, body: Mapping[str, object]) -> Mapping[str, Sequence[Sequence[Mapping[str, object]]]]:
        import httpx

        try:
            answer = self._http.post(path, json=body)
            found = answer.json()
        except httpx.HTTPError as error:
            raise DataError(f"{self._http.base_url} does not answer: {error}") from None
        except ValueError:
            raise DataError(f"{self._http.base_url} is no regard server: its answer is not JSON") from None
        if answer.status_code != 200 or not isinstance(found, dict) or "outputs" not in found:
            hint = f"; set {KEY}" if answer.status_code == 401 else ""
            words = found.get("error") if isinstance(found, dict) else None
            raise DataError(f"{self._http.base_url} refuses ({answer.status_code}): {words}{hint}")
        return found


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
