"""A question about a page: one model of the server reads it and asks the language model; the answer
streams."""

import queue
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpc


def tensor(name: str, kind: str, value: object) -> grpc.InferInput:
    made = grpc.InferInput(name, [1], kind)
    made.set_data_from_numpy(np.array([value], dtype=np.int32 if kind == "INT32" else np.object_))
    return made


def main(picture: str, question: str, url: str = "127.0.0.1:8001", model: str = "page_assistant") -> None:
    inputs = [
        tensor("image", "BYTES", Path(picture).read_bytes()),
        tensor("question", "BYTES", question.encode()),
        tensor("max_tokens", "INT32", 64),
    ]
    answers: queue.Queue[Any] = queue.Queue()
    with grpc.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer(model, inputs, enable_empty_final_response=True)
        while True:
            answer = answers.get(timeout=60)
            if isinstance(answer, Exception):
                raise answer
            if answer.get_response().parameters["triton_final_response"].bool_param:
                break
            print(answer.as_numpy("text_output").item().decode(), end="", flush=True)
        client.stop_stream()
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
