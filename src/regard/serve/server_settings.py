"""The settings of a server, and its limits."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import ipaddress
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.errors import SpecError, UnknownName
from regard.spec import Plain

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MAX_KEY_FILE = 1_000_000
"""Maximum bytes of a key file."""
MIN_KEY = 16
"""Characters of an API key."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of one request, and of their number."""

    body: int = 4 << 20
    """Bytes of a request."""
    items: int = 128
    """Texts in a request."""
    characters: int = 100_000
    """Characters in all texts of a request."""
    beams: int = 16
    """Hypotheses of a sentence; also outputs of an input."""
    tokens: int = 2048
    """Tokens of an output."""
    working_memory: int = 2 << 30
    """Bytes that a request may need besides the models: for attention weights, logits, and what a decoder remembers."""
    seconds: float = 60.0
    """Time for an answer; of a stream, for all of it."""
    silent_seconds: float = 10.0
    """Time without a sign of life, or after the time for an answer, after which the process of the models is started again."""
    body_seconds: float = 10.0
    """Time for the body of a request to arrive."""
    header_seconds: float = 10.0
    """Time for the header of a request to arrive, and for a TLS handshake."""
    stall_seconds: float = 30.0
    """Time in which a client takes nothing of its answer."""
    connections: int = 1000
    """Connections; fewer if there are not enough file descriptors."""
    address_share: float = 0.5
    """Share of the connections that one address, other than this machine's, or one IPv6 network of 64 bits may have."""
    requests: int = 128
    """Requests that are answered or wait at the same time."""
    client_requests: int = 64
    """Maximum concurrent requests per client."""
    depth: int = 16
    """Nesting of JSON."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not 0 < getattr(self, field.name) < math.inf:  # nor is it NaN
                raise SpecError(f"the limit {field.name} should be above 0 and finite, got {getattr(self, field.name)}")


@dataclasses.dataclass(frozen=True)
class ServerSettings:
    """The settings of `regard serve`."""

    models: Mapping[str, str]
    """Folders by name."""
    host: str = "127.0.0.1"
    port: int = 5000
    keys: Sequence[str] = ()
    """API keys; each is a client of its own."""
    allowed_hosts: Sequence[str] = ()
    """Names in the Host header, besides localhost and addresses."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    runs: str | None = None
    """A folder of runs whose training is shown."""
    engine: str = "auto"
    device: str = "cpu"
    set: Mapping[str, object] = dataclasses.field(default_factory=dict)
    plugins: Sequence[str] = ()
    slots: int = 64
    """Rows that are decoded together."""
    memory: int | None = None
    """Bytes for all loaded models; None: no limit."""
    watch: float = 5.0
    """Seconds between two looks for a better model of a run that is training."""
    log_texts: bool = False
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not self.models and self.runs is None:
            raise SpecError("serve needs a model folder, or --runs with a folder of runs; got neither")
        if not self.is_local and not self.keys:
            raise SpecError(
                f"a server on {self.host} can be reached from elsewhere and needs a key: write one into a file and name it "
                "with --key-file, or leave out --host"
            )
        if not 0 <= self.port < 1 << 16:
            raise SpecError(f"a port should be 0 to 65535, got {self.port}")
        for key in self.keys:
            if len(key) < MIN_KEY or not key.isascii() or not key.isprintable() or " " in key:
                raise SpecError(f"a key should be {MIN_KEY} or more printable ASCII characters without spaces")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise SpecError("TLS needs both --tls-cert and --tls-key")

    @property
    def is_local(self) -> bool:
        """True if only this machine can connect."""
        if self.host in LOOPBACK:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def find_client(self, key: str) -> str | None:
        """A name for the client with this key; None if no client has it."""
        given, found = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest(), None
        for i, known in enumerate(self.keys, 1):
            if hmac.compare_digest(hashlib.sha256(known.encode()).digest(), given):
                found = f"key {i}"
        return found

    def for_inference(self) -> Plain:
        """The part of the settings that the inference process needs."""
        return {
            "models": dict(self.models), "engine": self.engine, "device": self.device, "set": dict(self.set),
            "plugins": [*self.plugins], "slots": self.slots, "memory": self.memory, "watch": self.watch,
            "requests": self.limits.requests, "seconds": self.limits.seconds,
            "working_memory": self.limits.working_memory,
        }  # fmt: skip


def read_keys(path: str | Path) -> list[str]:
    """The keys of a file, one per line; empty lines and those that begin with # are skipped."""
    try:
        with Path(path).open("rb") as file:  # which may be a pipe: --key-file <(…)
            data = file.read(MAX_KEY_FILE + 1)
        lines = data.decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the key file {path} cannot be read: {error}") from None
    if len(data) > MAX_KEY_FILE:
        raise SpecError(f"the key file {path} is refused: it has more than {MAX_KEY_FILE:,} bytes")
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise SpecError(f"the key file {path} has no key; write one of at least {MIN_KEY} characters into it")
    return keys


def parse_limits(given: Sequence[str]) -> Limits:
    """Limits by name: `beams=4`."""
    known = {name: type(value) for name, value in dataclasses.asdict(Limits()).items()}
    found: dict[str, float] = {}
    for each in given:
        name, _, value = each.partition("=")
        if name not in known:
            raise UnknownName("limit", name, known)
        try:
            found[name] = known[name](value)
        except ValueError:
            raise SpecError(f"the limit {name} should be a number, got {value!r}") from None
    return Limits(**found)  # type: ignore[arg-type]


def name_models(given: Sequence[str]) -> dict[str, str]:
    """Folders by name: `name=path`, or a path, whose last part is the name."""
    out: dict[str, str] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not equals:
            name, path = Path(each).resolve().name, each
        if not name or not all(letter.isalnum() or letter in "-_." for letter in name):
            raise SpecError(f"a model's name should be letters, digits and -_. alone, got {name!r}; write NAME={path}")
        if name in out:
            raise SpecError(f"two models have the name {name}; write {name}-2={path}")
        out[name] = path
    return out
