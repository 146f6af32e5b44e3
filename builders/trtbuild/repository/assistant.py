"""The page assistant: a model beside an OCR pipeline and a language model that puts the two together.

An example of a model of one's own in a written repository: its folder is not in the manifest, and `update`
leaves it alone.
"""

from __future__ import annotations

from pathlib import Path

from trtbuild.repository import steps
from trtbuild.repository.llm import ENGINE_ADDRESS, own_tensors
from trtbuild.repository.render import model_code, render_config

NAME = "page_assistant"
_CHARACTERS_A_TOKEN = 3  # of a page, cautiously; the rest of the prompt is short


def write_assistant(
    repository: Path, *, reader: str, llm: str, max_input_tokens: int, name: str = NAME
) -> Path:
    """Writes the assistant's folder into a repository.

    Args:
        reader, llm: names of the OCR pipeline and of the language model's text front.
        max_input_tokens: longest prompt of the language model.

    Returns:
        The folder.
    """
    inputs, outputs = own_tensors("page_assistant")
    text, _ = render_config(
        "page_assistant",
        name=name,
        origin=f"the models {reader} and {llm}",
        inputs=inputs,
        outputs=outputs,
        parameters={
            "reader_model": reader,
            "llm_model": llm,
            "address": ENGINE_ADDRESS,
            "max_page_characters": str(_CHARACTERS_A_TOKEN * max_input_tokens // 2),
        },
    )
    folder = repository / name
    steps.make_folder(folder / "1")
    steps.write_file(folder / "config.pbtxt", text.encode())
    for file, data in model_code("page_assistant").items():
        steps.write_file(folder / "1" / file, data)
    return folder
