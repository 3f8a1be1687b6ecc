"""How a server runs: the flags of bin/serve."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """How a server runs; its fields are flags, hence the wording.

    Attributes:
        host: address to listen on; any other than this machine's own lets others in
        http_port: for HTTP; 0 takes a free one
        grpc_port: for gRPC; 0 takes a free one
        metrics_port: for metrics of Prometheus; 0 takes a free one
        join_requests: answer requests that wait together in one batch
        timeout_s: seconds after which it stops; default: never
        log_file: for messages of the server; default: none is kept
    """

    host: str = "127.0.0.1"
    http_port: int = dataclasses.field(default=8000, metadata={"lower_bound": 0})
    grpc_port: int = dataclasses.field(default=8001, metadata={"lower_bound": 0})
    metrics_port: int = dataclasses.field(default=8002, metadata={"lower_bound": 0})
    join_requests: bool = True
    timeout_s: float | None = dataclasses.field(default=None, metadata={"lower_bound": 0})
    log_file: str | None = None

    @property
    def ports(self) -> dict[str, int]:
        """By the names of their fields."""
        return {name: getattr(self, name) for name in ("http_port", "grpc_port", "metrics_port")}
