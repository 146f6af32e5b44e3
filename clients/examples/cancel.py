"""Stopping a request: by leaving its stream, and from another thread."""

import sys
import threading

from tritonstream import Client, TextDelta, TritonStreamError

PROMPT = "Count from one to one thousand, in words."


def main(url: str = "127.0.0.1:8001", model: str = "qwen-7b") -> None:
    with Client(url) as client:
        print(client.describe(model).cancel.why)

        with client.stream(model, PROMPT, max_tokens=1000) as stream:
            for event in stream:
                if isinstance(event, TextDelta):
                    break  # leaving the block cancels; the engine frees the request's KV cache
        print(f"left after {stream.completion.text!r}")

        stream = client.stream(model, PROMPT, max_tokens=1000)
        threading.Timer(0.2, stream.cancel).start()
        answer = stream.result()
        print(f"{answer.finish_reason} after {len(answer.text)} characters")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except TritonStreamError as error:
        sys.exit(f"error: {error}")
