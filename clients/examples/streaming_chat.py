"""Chat that appears as it is made."""

import sys

from tritonstream import Client, Finish, TextDelta, Timings, TritonStreamError, Usage


def main(url: str = "127.0.0.1:8001", model: str = "qwen-7b") -> None:
    messages = [{"role": "user", "content": "Why is the sky blue? Two sentences."}]
    with Client(url) as client, client.chat(model, messages, stream=True, max_tokens=200) as stream:
        for event in stream:
            match event:
                case TextDelta(text=text):
                    print(text, end="", flush=True)
                case Finish(reason=reason):
                    print(f"\n[{reason}]", end=" ")
                case Usage():
                    print(f"{event.prompt_tokens} + {event.completion_tokens} tokens,", end=" ")
                case Timings(first_token_s=first_s) if first_s is not None:
                    print(f"first after {first_s * 1000:.0f} ms, all after {event.total_s:.2f} s")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except TritonStreamError as error:
        sys.exit(f"error: {error}")
