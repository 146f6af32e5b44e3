"""Which server is measured, and what is known of it."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtbuild.errors import RepositoryError, ServeError
from trtbuild.plan.model import Plan

METRICS_PORT = 8002  # Triton's default
_ANSWER_S = 2.0


@dataclass(frozen=True)
class MeasuredServer:
    """A server under test. What is not known of it is None.

    Attributes:
        address: ``HOST:PORT`` of gRPC; metrics, http: of the two others.
        pid: of tritonserver, where it runs on this machine.
        repository: the folder that it serves.
    """

    address: str
    metrics: str | None = None
    http: str | None = None
    pid: int | None = None
    repository: Path | None = None

    @property
    def is_here(self) -> bool:
        host = self.address.rpartition(":")[0]
        return host in ("127.0.0.1", "localhost", "[::1]")

    def plan(self) -> Plan | None:
        """The plan of the repository, where trtbuild wrote it."""
        opened = self._opened()
        return None if opened is None else opened.plan

    def _opened(self) -> Any:
        if self.repository is None:
            return None
        from trtbuild.tenants import Repository

        try:
            return Repository.open(self.repository)
        except RepositoryError:
            return None

    def facts(self, models: list[str]) -> dict[str, Any]:
        """A record's ``deployment``."""
        opened = self._opened()
        return {
            "address": self.address,
            "models": models,
            "repository": str(self.repository) if self.repository else None,
            "spec": opened.spec.model_dump(mode="json", exclude_unset=True) if opened else None,
            "plan": opened.plan.model_dump(mode="json") if opened else None,
        }

    def models(self) -> list[str]:
        """The models that Triton's repository index calls ready; empty of a server that has no such index.

        Raises:
            ServeError: nothing answers at its address.
        """
        import grpc
        from tritonclient.grpc import service_pb2, service_pb2_grpc

        with grpc.insecure_channel(self.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            try:
                asked = service_pb2.RepositoryIndexRequest(ready=True)
                return sorted({one.name for one in stub.RepositoryIndex(asked, timeout=_ANSWER_S).models})
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise ServeError(
                        f"no server answers at {self.address}: {error.details()}",
                        "the address of its gRPC service: --url HOST:PORT, Triton's default is port 8001",
                    ) from error
                return []

    def version(self) -> str | None:
        """Triton's own version, as its HTTP service tells."""
        if self.http is None:
            return None
        try:
            with urllib.request.urlopen(f"http://{self.http}/v2", timeout=_ANSWER_S) as answer:
                return str(json.load(answer).get("version"))
        except (OSError, ValueError):
            return None


def find_server(repository: Path | None, url: str | None, metrics: str | None = None) -> MeasuredServer:
    """The server that is meant: by gRPC address, by repository, or the only one that runs here.

    Raises:
        ServeError: none runs here, or several do.
    """
    from trtbuild.serve.registry import reach, running

    if url is not None:
        host, _, port = url.rpartition(":")
        local = host in ("127.0.0.1", "localhost", "[::1]")
        records = [record for record in running() if local and str(record.grpc_port) == port]
        if not records:
            return MeasuredServer(url, metrics or f"{host or url}:{METRICS_PORT}")
        record = records[0]
    else:
        try:
            record = reach(repository.expanduser() if repository is not None else None)
        except ServeError as error:
            raise ServeError(error.message, *error.remedies, "or --url HOST:PORT") from error
    return MeasuredServer(
        f"127.0.0.1:{record.grpc_port}",
        metrics or f"127.0.0.1:{record.metrics_port}",
        f"127.0.0.1:{record.http_port}",
        record.server_pid,
        Path(record.repository),
    )
