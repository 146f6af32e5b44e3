"""A test of your own code without any server: a fake Triton that says what it is told, and fails as told."""

from tritonstream import Client, ServerError
from tritonstream.testing import FakeModel, FakeTriton, Fault


def summarise(client: Client, text: str) -> str:
    """Your code: falls back to the first words where the model fails."""
    try:
        return client.generate("llm", f"Summarise: {text}", max_tokens=50).text
    except ServerError:
        return text[:20] + "…"


def main() -> None:
    model = FakeModel(reply=["A ", "short ", "text."], first_token_s=0.01)
    with FakeTriton({"llm": model}) as server, Client(server.url) as client:
        assert summarise(client, "A text that is long.") == "A short text."
        assert server.served[0].inputs["text_input"] == "Summarise: A text that is long."

        model.faults = [Fault("error", at=1, message="CUDA out of memory")]
        assert summarise(client, "A text that is long.") == "A text that is long.…"
    print("both cases work")


if __name__ == "__main__":
    main()
