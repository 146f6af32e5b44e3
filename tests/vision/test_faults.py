"""A fault inside the server: its client is told who can act, and only the log names files and segments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.pages import ENGLISH, draw, encoded

from trtbuild_templates.faults import told

SEGMENT = (
    "Failed to increase the shared memory pool size for key 'trtbuild-1-ab-cd' to 1048576 bytes. "
    "Error: No space left on device"
)


@pytest.mark.parametrize(
    ("detail", "part"),
    [
        (SEGMENT, "/dev/shm is full"),
        (RuntimeError(SEGMENT), "--shm-size"),
        (MemoryError("/opt/secret/model.py"), "the server's log says why"),
    ],
)
def test_the_detail_is_for_the_log(detail: object, part: str) -> None:
    logged: list[str] = []
    pb_utils = SimpleNamespace(Logger=SimpleNamespace(log_error=logged.append))
    message = told("the network ocr_det failed", detail, pb_utils)
    assert message.startswith("the network ocr_det failed: ")
    assert part in message
    for secret in ("trtbuild-1-ab-cd", "secret", "RuntimeError"):
        assert secret not in message
    assert len(logged) == 1
    assert str(detail) in logged[0]


# In a mount namespace of its own: fills /dev/shm under a running server.
_FILL = """
import os, shutil, sys
from pathlib import Path
from tests.support.vision_client import VisionClient
from tritonclient.utils import InferenceServerException
from trtbuild.serve.server import start
with start(Path(sys.argv[1])) as server:
    client, page = VisionClient(server.grpc_address), Path(sys.argv[2]).read_bytes()
    filler = Path("/dev/shm/filler")
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage("/dev/shm").free)
    try:
        client.read(page)
    except InferenceServerException as error:
        print("SAID", error.status(), error.message())
    filler.unlink()
    print("READ", len(client.read(page).text))
    print("LOGGED", "shared memory pool size for key 'trtbuild-" in server.log_path.read_text())
    client.close()
"""


def _own_shm(megabytes: int) -> list[str]:
    """Begins a command that has a /dev/shm of its own; the test is skipped where that is not allowed."""
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size={megabytes}m none /dev/shm"
    try:
        subprocess.run([*words, mount], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs a mount namespace: {error}")
    return [*words, f'{mount} && exec "$@"', "sh"]


@pytest.mark.server
@pytest.mark.timeout(300)
def test_a_full_dev_shm_is_told_without_its_segments(ocr_repository: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.png"
    page.write_bytes(encoded(draw(ENGLISH)))
    done = subprocess.run(
        [*_own_shm(256), sys.executable, "-c", _FILL, str(ocr_repository), str(page)],
        capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=280, check=False,
    )  # fmt: skip
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert said.keys() == {"SAID", "READ", "LOGGED"}, done.stderr
    assert said["SAID"].startswith("StatusCode.UNAVAILABLE the network ocr_det failed: ")
    assert "/dev/shm is full" in said["SAID"]
    assert "trtbuild-" not in said["SAID"]
    assert said["READ"] == str(len(ENGLISH))
    assert said["LOGGED"] == "True"
