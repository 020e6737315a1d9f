"""Errors, in the shape of the API that was asked.

OpenAI          {"error": {"message", "type", "param", "code"}}      paths below /v1/
LibreTranslate  {"error": "message"}                                 all others, ours included
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

from regard.errors import make_printable

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
MAX_MESSAGE = 1000
"""Characters of a message: it may quote what a client sent."""


class ApiError(Exception):
    """An error response."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, retry: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry = status, message, param, code, retry

    @property
    def headers(self) -> Mapping[str, str]:
        """`Retry-After`, where trying again may help; how to give a key, where it is missing."""
        out = {} if self.retry is None else {"Retry-After": str(self.retry)}
        return out | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def shape_error(path: str, error: ApiError) -> dict[str, object]:
    """The body of an error."""
    message = make_printable(error.message[:MAX_MESSAGE])[:MAX_MESSAGE]
    if not path.startswith("/v1/"):
        return {"error": message}
    kind = TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": error.param, "code": error.code}}


def answer_error(path: str, error: ApiError) -> JSONResponse:
    """The response for an error."""
    return JSONResponse(shape_error(path, error), error.status, headers=dict(error.headers))


def invalid(message: str, param: str | None = None) -> ApiError:
    return ApiError(400, message, param=param)


FROM_INFERENCE = {
    "invalid": (400, None),
    "unknown": (404, None),
    "busy": (503, 5),
    "cancelled": (503, 1),
    "late": (504, None),
    "damaged": (500, None),
}
"""Status and `Retry-After` of errors of the inference process; any other is a 500."""


def from_inference(kind: str, message: str) -> ApiError:
    """An error that the inference process described."""
    status, retry = FROM_INFERENCE.get(kind, (500, None))
    return ApiError(status, message, code="model_not_found" if kind == "unknown" else None, retry=retry)
