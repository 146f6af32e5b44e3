"""A limit on the whole request, which the server is told as well, and limits on its phases."""

import sys

from tritonstream import Client, FirstTokenTimeout, Timeouts, TotalTimeout, TritonStreamError


def main(url: str = "127.0.0.1:8001", model: str = "qwen-7b") -> None:
    timeouts = Timeouts(connect_s=2, first_token_s=10, between_tokens_s=5)
    with Client(url, timeouts=timeouts) as client:
        try:
            answer = client.generate(model, "Tell a long story.", max_tokens=2000, deadline_s=0.5)
            print(f"in time: {answer.text!r}")
        except FirstTokenTimeout:
            print("the server was too busy to begin")
        except TotalTimeout as late:
            print(f"too late; until then: {late.partial.text if late.partial else ''!r}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except TritonStreamError as error:
        sys.exit(f"error: {error}")
