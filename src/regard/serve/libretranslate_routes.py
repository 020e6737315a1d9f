"""LibreTranslate's API: /translate, /detect, /languages.

Text is translated line by line; of HTML, what stands between the tags. Language codes come from the models.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from pydantic import BaseModel, Field

from regard.errors import name_extra
from regard.serve.api_error import ApiError, invalid
from regard.serve.call import Call, Route
from regard.serve.request_body import Texts
from regard.spec import Plain

TAGS = re.compile(r"(<[^<>]*>)")
ZEROS, TOO_LARGE = re.compile(r"(?<=&#)0++(?=[0-9])"), re.compile(r"&#[0-9]{8,};?")
"""Parts of numeric character references: leading zeros, and numbers beyond Unicode, which `html.unescape` may not convert."""
MAX_DETECTED = 2000
"""Characters of a text that are looked at to detect its language."""


class TranslateBody(BaseModel):
    """`q` is a text or a list; `alternatives` further translations are given beside the best."""

    q: Texts
    source: str = "auto"
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0)
    model: str | None = None
    """Ours: which model, if several translate between these languages."""


class DetectBody(BaseModel):
    q: Texts


async def translate(call: Call, body: TranslateBody) -> object:
    texts = body.q if isinstance(body.q, list) else [body.q]
    call.check_texts(texts, "q")
    most = call.server.settings.limits.beams - 1
    if body.alternatives > most:
        raise invalid(f"alternatives should be at most {most}, got {body.alternatives}", "alternatives")
    about = choose_pair(call, body.source, body.target, body.model)
    pieces = [split_markup(text, body.format) for text in texts]
    inputs = [piece for each in pieces for piece in each.inputs]
    options = {"n_best": body.alternatives + 1} if body.alternatives else {}
    to = body.target if about["languages"]["tagged"] else None
    found = await call.infer("run", about["name"], inputs=inputs, to=to, options=options) if inputs else {"outputs": []}
    rest = iter(found["outputs"])

    def join() -> list[list[str]]:
        return [each.join([next(rest) for _ in each.inputs], body.alternatives + 1) for each in pieces]

    results = await asyncio.to_thread(join)  # as many steps as parts and alternatives
    out: dict[str, object] = {"translatedText": [best for best, *_ in results]}
    if body.alternatives:
        out["alternatives"] = [others for _, *others in results]
    if not isinstance(body.q, list):
        out = {name: value[0] for name, value in out.items() if isinstance(value, list)}
    return out


class SplitText:
    """A text as parts, some of which are translated."""

    def __init__(self, parts: Sequence[str], is_input: Sequence[bool], is_html: bool) -> None:
        self._parts, self._is_input, self._is_html = parts, is_input, is_html
        self.inputs = [
            unescape_html(part) if is_html else part for part, chosen in zip(parts, is_input, strict=True) if chosen
        ]

    def join(self, outputs: Sequence[Sequence[Plain]], count: int) -> list[str]:
        """The best translation of the whole text, the second best, …; as many as differ, at most `count`."""
        whole = []
        for rank in range(count):
            rest = iter(outputs)
            parts = [
                self._write(next(rest), rank) if chosen else part
                for part, chosen in zip(self._parts, self._is_input, strict=True)
            ]
            whole.append("".join(parts))
        return list(dict.fromkeys(whole))

    def _write(self, outputs: Sequence[Plain], rank: int) -> str:
        if not outputs:
            return ""
        if outputs[0].get("error"):
            raise invalid(str(outputs[0]["error"]), "q")
        text = str(outputs[min(rank, len(outputs) - 1)]["text"])
        return html.escape(text, quote=False) if self._is_html else text


def unescape_html(text: str) -> str:
    """The text that HTML stands for; a reference to no character is U+FFFD, however many digits it has."""
    return html.unescape(TOO_LARGE.sub("\ufffd", ZEROS.sub("", text)))


def split_markup(text: str, format: str) -> SplitText:
    """Lines, or what stands between tags; blank parts are not translated."""
    parts = TAGS.split(text) if format == "html" else re.split(r"(\r?\n)", text)
    return SplitText(parts, [i % 2 == 0 and bool(part.strip()) for i, part in enumerate(parts)], format == "html")


def choose_pair(call: Call, source: str, target: str, name: str | None) -> Plain:
    """The model that translates between two languages."""
    call.choose_model(name, "translate")  # says why, if there is none at all
    models = [about for about in call.list_models("translate") if name in (None, about["name"])]
    fitting = [about for about in models if target in about["languages"]["targets"]]
    if not fitting:
        known = sorted({code for about in models for code in about["languages"]["targets"]})
        raise invalid(f"{target!r} is not supported as a target language; available: {', '.join(known)}", "target")
    for about in fitting:
        if source == "auto" or source in about["languages"]["sources"]:
            return about
    known = sorted({code for about in fitting for code in about["languages"]["sources"]})
    raise invalid(f"{source!r} is not supported as a source language; available: {', '.join(known)}", "source")


async def detect(call: Call, body: DetectBody) -> object:
    try:
        from langdetect import DetectorFactory, detect_langs
        from langdetect.lang_detect_exception import LangDetectException
    except ImportError:
        raise ApiError(501, f"no language detector is installed on this server; {name_extra('detect')}") from None
    texts = body.q if isinstance(body.q, list) else [body.q]
    call.check_texts(texts, "q")
    DetectorFactory.seed = 0  # otherwise a short text has another language every time

    def find() -> list[dict[str, object]]:
        try:
            found = detect_langs("\n".join(texts)[:MAX_DETECTED])
        except LangDetectException:  # no letters in it
            return []
        return [{"confidence": round(100 * each.prob, 1), "language": each.lang} for each in found]

    return await asyncio.to_thread(find)


async def languages(call: Call, body: None) -> object:
    targets: dict[str, set[str]] = {}
    for about in call.list_models("translate"):
        for source in about["languages"]["sources"]:
            targets.setdefault(source, set()).update(about["languages"]["targets"])
    return [{"code": code, "name": name_language(code), "targets": sorted(targets[code])} for code in sorted(targets)]


async def frontend_settings(call: Call, body: None) -> object:
    """Answer what LibreTranslate's page asks first."""
    settings, models = call.server.settings, call.list_models("translate")
    pair = models[0]["languages"] if models else {"sources": [""], "targets": [""]}
    sides = {"source": pair["sources"][0], "target": pair["targets"][0]}
    return {
        "apiKeys": bool(settings.keys),
        "keyRequired": bool(settings.keys),
        "charLimit": settings.limits.characters,
        "frontendTimeout": 500,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "suggestions": False,
        "language": {side: {"code": code, "name": name_language(code)} for side, code in sides.items()},
    }


@lru_cache(maxsize=256)
def name_language(code: str) -> str:
    """The English name of a language; the code itself, if it is none."""
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(code, sep="-" if "-" in code else "_").get_display_name("en") or code
    except (ValueError, UnknownLocaleError):
        return code.capitalize()


ROUTES = [
    Route("POST", "/translate", translate, TranslateBody, forms=True),
    Route("POST", "/detect", detect, DetectBody, forms=True),
    Route("GET", "/languages", languages, forms=True, admits=False),
    Route("GET", "/frontend/settings", frontend_settings, forms=True, admits=False),
]
