"""``trtbuild doctor``: this host, and a live server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtbuild.cli.console import print_json
from trtbuild.cli.options import FOLDER

if TYPE_CHECKING:
    from trtbuild.doctor.base import Diagnosis
    from trtbuild.doctor.live import LiveFacts

_PORTS = (8000, 8001, 8002)
_HERE = ("localhost", "127.0.0.1", "[::1]")  # of another host only its server can be judged


@click.command("doctor")
@click.argument("repo", type=FOLDER, required=False)
@click.option("--container", metavar="RELEASE", help="The container that is to run, such as 25.10.")
@click.option(
    "--url", metavar="HOST:PORT", help="HTTP address of a live server; default: the one of REPO here."
)
@click.option("--metrics", metavar="HOST:PORT", help="Its metrics; default: port 8002 of the same host.")
@click.option("--log", type=FOLDER, help="Its log file.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor_command(
    repo: Path | None,
    container: str | None,
    url: str | None,
    metrics: str | None,
    log: Path | None,
    as_json: bool,
) -> None:
    """Check this host against REPO, and a live server if one runs. Exit code 1 when something cannot work."""
    from trtbuild.doctor.host import read_host
    from trtbuild.doctor.host_checks import check_host
    from trtbuild.doctor.live_checks import check_live
    from trtbuild.doctor.needs import read_needs

    needs = read_needs(repo, container)
    live = _live(repo, url, metrics, log)
    elsewhere = url is not None and repo is None and container is None and _host(url) not in _HERE
    ports = () if live is not None else _PORTS
    found = [] if elsewhere else check_host(read_host(repo or Path(), ports), needs)
    if live is not None:
        found += check_live(live)
    if as_json:
        print_json([item.as_json() for item in found])
    else:
        for item in found:
            click.echo(_shown(item))
    if any(item.state == "error" for item in found):
        click.get_current_context().exit(1)


def _live(repo: Path | None, url: str | None, metrics: str | None, log: Path | None) -> LiveFacts | None:
    """The server that is named, or that of the repository if one runs here."""
    from trtbuild.doctor.live import read_live
    from trtbuild.errors import ServeError

    names = (
        tuple(sorted(path.parent.name for path in repo.glob("*/config.pbtxt"))) if repo is not None else ()
    )
    if url is not None:
        return read_live(url, metrics or f"{_host(url)}:8002", names=names, log=log)
    if repo is None:
        return None
    from trtbuild.serve.registry import find

    try:
        record = find(repo)
    except ServeError:
        return None
    ports = (f"127.0.0.1:{port}" for port in (record.http_port, record.metrics_port))
    return read_live(*ports, names=names, log=log or Path(record.log))


def _host(url: str) -> str:
    """The host of an address, an IPv6 one in brackets."""
    from trtbuild.doctor.live import base_url

    netloc = base_url(url).partition("://")[2]
    host, separator, port = netloc.rpartition(":")
    return host if separator and port.isdigit() else netloc


def _shown(item: Diagnosis) -> str:
    mark = {"ok": "ok     ", "info": "info   ", "warning": "warning", "error": "error  "}[item.state]
    remedy = f"\n           → {item.remedy}" if item.remedy else ""
    return f"{mark}  {item.check}: {item.found}{remedy}"
