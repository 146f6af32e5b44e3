"""200 requests at a time over one connection."""

import asyncio
import sys
import time

from tritonstream import AsyncClient, TritonStreamError

REQUESTS = 200


async def run(url: str, model: str) -> None:
    begun = time.perf_counter()
    async with AsyncClient(url) as client:
        prompts = [f"Write one word that rhymes with number {number}." for number in range(REQUESTS)]
        tokens = failed = 0
        async for answer in client.many(
            model, prompts, concurrency=REQUESTS, return_errors=True, max_tokens=32
        ):
            if isinstance(answer, Exception):
                failed += 1
                print(f"failed: {answer}")
            else:
                tokens += answer.usage.completion_tokens or 0
    seconds = time.perf_counter() - begun
    print(f"{REQUESTS - failed} answers, {tokens} tokens in {seconds:.1f} s: {tokens / seconds:.0f} tokens/s")


def main(url: str = "127.0.0.1:8001", model: str = "qwen-7b") -> None:
    asyncio.run(run(url, model))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except TritonStreamError as error:
        sys.exit(f"error: {error}")
