"""The text of a picture, and a question about it: two models of one server."""

import sys

from tritonstream import Client, TritonStreamError


def main(picture: str, url: str = "127.0.0.1:8001", model: str = "qwen-7b", reader: str = "ocr") -> None:
    with Client(url) as client:
        page = client.ocr(reader, picture)
        for line in page.lines:
            print(f"{line.score:.2f}  {line.text}")
        question = f"This is the text of a page:\n\n{page.text}\n\nWhat is it about? One sentence."
        print(client.chat(model, [{"role": "user", "content": question}], max_tokens=100).text)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: ocr_then_ask.py PICTURE [HOST:PORT] [MODEL] [READER]")
    try:
        main(*sys.argv[1:])
    except (OSError, TritonStreamError) as error:
        sys.exit(f"error: {error}")
