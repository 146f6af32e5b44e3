"""A whole comparison: both sides asked in turn, what they say judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trtbuild.errors import MeasureError, ServeError
from trtbuild.measure.quality.answers import Answer, Respondent
from trtbuild.measure.quality.judge import Verdict, judge
from trtbuild.measure.quality.questions import Question, forced, needles, repeats
from trtbuild.measure.server import MeasuredServer

NEEDLE_TOKENS = 1024  # longest prompt for needles where the plan is not known


@dataclass(frozen=True)
class Side:
    """Baseline or candidate: a running server, or a repository that is served for as long as it takes."""

    place: str  # HOST:PORT or folder
    model: str | None = None

    @contextmanager
    def served(self, concurrency: int) -> Iterator[tuple[Respondent, int | None]]:
        """Whom to ask, and its longest prompt where that is known.

        Raises:
            ServeError, MeasureError: neither a server nor a repository that can be served, or no such model.
        """
        folder = Path(self.place).expanduser()
        if not folder.is_dir():
            yield Respondent(self.place, self.model or self._only_model(), concurrency=concurrency), None
            return
        from trtbuild.serve import registry, server
        from trtbuild.tenants import Repository

        repository = Repository.open(folder)
        llms = {llm.name: llm for llm in repository.plan.llms}
        name = self.model or (next(iter(llms)) if len(llms) == 1 else None)
        if name not in llms:
            raise MeasureError(f"{folder} holds {', '.join(llms) or 'no language model'}", "--model NAME")
        longest = llms[name].max_input_tokens
        try:
            record = registry.find(folder)
        except ServeError:
            with server.start(folder) as started:
                yield Respondent(started.grpc_address, name, concurrency=concurrency), longest
            return
        yield Respondent(f"127.0.0.1:{record.grpc_port}", name, concurrency=concurrency), longest

    def _only_model(self) -> str:
        if ":" not in self.place:
            raise MeasureError(f"{self.place} is neither a folder nor HOST:PORT of a server")
        names = MeasuredServer(self.place).models()
        if len(names) != 1:
            listed = ", ".join(names) or "what it does not list"
            raise MeasureError(
                f"{self.place} serves {listed}, and which is meant is not known",
                *(f"--model {name}" for name in names or ["NAME"]),
            )
        return names[0]


def compare(
    before: Side,
    after: Side,
    asked: Sequence[Question],
    gate: dict[str, float],
    *,
    times: int = 3,
    with_needles: bool = True,
    concurrency: int = 4,
    on_step: Callable[[str], AbstractContextManager[None]],
) -> Verdict:
    """Asks the baseline, then the candidate, and judges.

    Args:
        asked: the user's questions; repeats, needles and single steps are made here.
        times: how often the first prompt is asked again.
        on_step: a display of one step.
    """
    with before.served(concurrency) as (baseline, longest):
        questions = [*asked, *repeats(asked, times, first=len(asked))]
        if with_needles:
            limit = longest or NEEDLE_TOKENS
            questions += needles(limit, baseline.sizing(), first=len(questions))
        with on_step(f"{len(questions)} questions to the baseline {before.place}"):
            old = baseline.ask(questions)
        _check_says(before, old[: len(asked)])
        steps = list(forced(asked, [answer.text for answer in old[: len(asked)]], first=len(questions)))
        with on_step(f"{len(steps)} single steps"):
            old += baseline.ask(steps)
        questions += steps
    with (
        after.served(concurrency) as (candidate, _),
        on_step(f"{len(questions)} questions to the candidate {after.place}"),
    ):
        new = candidate.ask(questions)
    _check_asked(before, after, old, new)
    return judge(questions, old, new, gate)


def _check_says(side: Side, answers: Sequence[Answer]) -> None:
    """Whether there is anything to compare with."""
    if not any(answer.error or answer.text.strip() for answer in answers):
        raise MeasureError(
            f"{side.place} answered all {len(answers)} requests with nothing: there is no text to compare",
            'ask it as its users do: {"messages": [{"role": "user", "content": "…"}]} goes through its chat '
            'template, {"prompt": "…"} does not',
        )


def _check_asked(before: Side, after: Side, old: Sequence[Answer], new: Sequence[Answer]) -> None:
    for side, answers in ((before, old), (after, new)):
        errors = [answer.error for answer in answers if answer.error]
        if errors and len(errors) == len(answers):
            raise MeasureError(f"{side.place} answered none of {len(answers)} questions: {errors[0]}")
