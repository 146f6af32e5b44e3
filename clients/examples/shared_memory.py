"""Inputs through /dev/shm, for a server on this machine that allows it (from 26.05: --allow-client-shm).

Worth it for large arrays. Regions are used again; those of a client that was killed are swept by the next.
"""

import sys
import time

import numpy as np

from tritonstream import Client, TritonStreamError

FREE_SIZE = 640  # of a dimension that the model leaves open


def main(url: str = "127.0.0.1:8001", model: str = "ocr_det") -> None:
    with Client(url) as client:
        spec = next(iter(client.describe(model).inputs.values()))
        picture = np.zeros([size if size > 0 else FREE_SIZE for size in spec.dims], dtype=np.float32)
        for shared in (False, True):
            begun = time.perf_counter()
            outputs = client.infer(model, {spec.name: picture}, shared_memory=shared)
            way = "shared memory" if shared else "the socket"
            print(f"{way}: {(time.perf_counter() - begun) * 1000:.1f} ms, {', '.join(outputs)}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except TritonStreamError as error:
        sys.exit(f"error: {error}")
