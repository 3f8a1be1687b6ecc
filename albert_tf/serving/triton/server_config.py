"""How a server runs: the flags of bin/serve."""

import dataclasses

from albert_tf.settings import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """How a server runs; its fields are flags, hence the wording."""

    host: str = setting(
        "address to listen on; any other than this machine's own lets others in", "127.0.0.1"
    )
    http_port: int = setting("for HTTP; 0 takes a free one", 8000, lowest=0)
    grpc_port: int = setting("for gRPC; 0 takes a free one", 8001, lowest=0)
    metrics_port: int = setting("for metrics of Prometheus; 0 takes a free one", 8002, lowest=0)
    join_requests: bool = setting("answer requests that wait together in one batch", True)
    timeout_s: float | None = setting("seconds after which it stops; default: never", None)
    log_file: str | None = setting("for messages of the server; default: none is kept", None)

    @property
    def ports(self) -> dict[str, int]:
        """By the names of their fields."""
        return {name: getattr(self, name) for name in ("http_port", "grpc_port", "metrics_port")}
