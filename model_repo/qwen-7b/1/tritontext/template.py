"""Chat messages to a prompt, through the model's own chat template."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Template, TemplateSyntaxError
from jinja2.exceptions import SecurityError

from .budget import TemplateCostError
from .errors import PromptError, TemplateError
from .sandbox import ChatEnvironment, RefusedByTemplate
from .utf8 import decode_input

MAX_SOURCE_CHARS = 1 << 20

Message = Mapping[str, Any]


class ChatTemplate:
    """A model's chat template, or a named list of them.

    Args:
        source: Jinja text; or ``{name: text}``, of which ``tool_use`` is taken when tools are given and
            ``default`` else; or Hugging Face's ``[{"name": …, "template": …}, …]``.
        special_tokens: what the template reads as ``bos_token``, ``eos_token``, ….

    Raises:
        TemplateError: if a template cannot be compiled.
    """

    def __init__(self, source: Any, special_tokens: Mapping[str, str] | None = None) -> None:
        self._special_tokens = dict(special_tokens or {})
        self._environment = ChatEnvironment()
        self._lock = threading.Lock()  # one rendering at a time: the environment counts its cost
        sources = _named(source)
        self._takes_tools = "tool_use" in sources or any("tools" in text for text in sources.values())
        # some write whole messages, whatever is in them
        self._shows_calls = any(
            word in text for text in sources.values() for word in ("tool_calls", "tojson", ".items(")
        )
        self._templates = {name: self._compile(name, text) for name, text in sources.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the templates; ``default`` where there is just one."""
        return tuple(self._templates)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        name: str | None = None,
        **variables: Any,
    ) -> str:
        """Renders messages to the prompt's text, special tokens spelt out.

        Args:
            messages: at least one of ``{"role": str, "content": str | None | [text parts], …}``.
            tools: JSON schemas of functions, as the template wants them.
            add_generation_prompt: end with the beginning of the assistant's answer.
            name: which of several templates; default by ``tools``.
            variables: more names for the template, such as ``enable_thinking``.

        Raises:
            PromptError: for messages of a wrong shape.
            TemplateError: if the template refuses them, fails, tries to leave its sandbox or costs too much.
        """
        checked = check_messages(messages)
        if tools and not self._takes_tools:
            raise TemplateError(
                "the model's chat template takes no tools, so the model would never see them; leave them "
                "out, or describe them in a message"
            )
        if not self._shows_calls:
            _refuse_calls(checked)
        template = self._pick(name, bool(tools))
        names = {**self._special_tokens, **variables}
        names.update(
            messages=checked,
            tools=list(tools) if tools else None,
            documents=variables.get("documents"),
            add_generation_prompt=add_generation_prompt,
        )
        with self._lock:
            self._environment.budget.reset()
            try:
                return "".join(template.generate(names))
            except RefusedByTemplate as exc:
                raise TemplateError(f"the model's chat template refuses these messages: {exc}") from None
            except TemplateCostError as exc:
                raise TemplateError(f"the model's chat template costs too much: {exc}") from None
            except SecurityError as exc:
                raise TemplateError(
                    f"the model's chat template tries to leave its sandbox: {_line(exc)}"
                ) from None
            except RecursionError:
                raise TemplateError("the model's chat template recurses too deeply") from None
            except MemoryError:
                raise TemplateError("the model's chat template costs too much: out of memory") from None
            except Exception as exc:  # any error of code that is not ours
                raise TemplateError(
                    f"the model's chat template failed on these messages: {type(exc).__name__}: {_line(exc)}"
                ) from None

    def _compile(self, name: str, text: str) -> Template:
        if len(text) > MAX_SOURCE_CHARS:
            raise TemplateError(
                f"the chat template {name!r} has {len(text):,} characters; no model's is that long"
            )
        try:
            self._environment.budget.reset()
            return self._environment.from_string(text)
        except TemplateSyntaxError as exc:
            raise TemplateError(
                f"the chat template {name!r} is broken in line {exc.lineno}: {_line(exc)}"
            ) from None
        except Exception as exc:  # constant parts are evaluated while compiling
            raise TemplateError(
                f"the chat template {name!r} cannot be compiled: {type(exc).__name__}: {_line(exc)}"
            ) from None

    def _pick(self, name: str | None, has_tools: bool) -> Template:
        if name is None:
            name = "tool_use" if has_tools and "tool_use" in self._templates else "default"
            if name not in self._templates and len(self._templates) == 1:
                name = next(iter(self._templates))
        if name not in self._templates:
            raise TemplateError(
                f"the model has no chat template {name!r}; it has {', '.join(self._templates)}"
            )
        return self._templates[name]


def _refuse_calls(messages: Sequence[Message]) -> None:
    index = next((index for index, message in enumerate(messages) if message.get("tool_calls")), None)
    if index is not None:
        raise TemplateError(
            f"the model's chat template takes no tool_calls, so the model would never see those of "
            f"messages[{index}]; write them into its content"
        )


def _named(source: Any) -> dict[str, str]:
    if isinstance(source, str):
        named: dict[Any, Any] = {"default": source}
    elif isinstance(source, Mapping):
        named = dict(source)
    elif isinstance(source, Sequence):
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, Mapping)}
    else:
        named = {}
    if not named or not all(isinstance(item, str) for pair in named.items() for item in pair):
        raise TemplateError("the model's chat template is neither a text nor a list of named texts")
    return named


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """Returns the messages in the form that templates read: text parts joined, characters checked.

    Raises:
        PromptError: if there are none, or one has no role, or content that is no text.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise PromptError(f"messages must be a list of {{role, content}}, not {_kind(messages)}")
    if not messages:
        raise PromptError(
            "messages is empty; give at least one, such as {'role': 'user', 'content': 'Hello'}"
        )
    return [_check_message(index, message) for index, message in enumerate(messages)]


def _check_message(index: int, message: Any) -> dict[str, Any]:
    what = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise PromptError(f"{what} must be an object with role and content, not {_kind(message)}")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise PromptError(f"{what} has no role; use 'system', 'user' or 'assistant'")
    checked = dict(message)
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        content = "".join(_text_part(f"{what}.content[{n}]", part) for n, part in enumerate(content))
    if content is not None and not isinstance(content, str):
        raise PromptError(f"{what}.content must be a text, not {_kind(content)}")
    if content is None and not any(message.get(key) for key in ("tool_calls", "reasoning_content")):
        raise PromptError(f"{what} has no content")
    if content is not None:
        checked["content"] = decode_input(content, f"{what}.content")
    checked["role"] = decode_input(role, f"{what}.role")
    return checked


def _text_part(what: str, part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else _kind(part)
    raise PromptError(f"{what} is {kind!r}; this model takes text only")


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:300]
