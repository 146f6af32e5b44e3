"""Rather a smaller answer than none: a degrade chain, and answers that say which step they came from."""

import sys

from tritonstream import Client, Degrade, Refused, Timeouts, TritonStreamError


def main(url: str = "127.0.0.1:8001", model: str = "qwen-7b", smaller: str = "smollm2-135m") -> None:
    chain = [
        Degrade(model=smaller, name="fast mode"),
        Degrade(max_tokens=32, name="short answer"),
        Degrade(refuse=True),
    ]
    with Client(url, degrade=chain, timeouts=Timeouts(first_token_s=1.0)) as client:
        try:
            question = {"role": "user", "content": "What is a KV cache?"}
            answer = client.chat(model, [question], max_tokens=200)
        except Refused as refused:
            print(f"Please come back later ({refused.message}).")
            return
        note = f" [{answer.origin.step_name}]" if answer.origin is not None and answer.degraded else ""
        print(answer.text + note)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except TritonStreamError as error:
        sys.exit(f"error: {error}")
