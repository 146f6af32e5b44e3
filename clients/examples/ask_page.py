"""A question about a page: one model of the server reads it and asks the language model; the answer
streams."""

import sys
from pathlib import Path

from tritonstream import Client, Tensors, TritonStreamError


def main(picture: str, question: str, url: str = "127.0.0.1:8001", model: str = "page_assistant") -> None:
    inputs = {"image": Path(picture).read_bytes(), "question": question, "max_tokens": 64}
    with Client(url) as client, client.infer_stream(model, inputs) as stream:
        for event in stream:
            if isinstance(event, Tensors):
                print(event.values["text_output"].item().decode(), end="", flush=True)
    print()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: ask_page.py PICTURE QUESTION [HOST:PORT] [MODEL]")
    try:
        main(*sys.argv[1:])
    except (OSError, TritonStreamError) as error:
        sys.exit(f"error: {error}")
