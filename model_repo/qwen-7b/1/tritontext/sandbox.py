"""The Jinja environment in which a model's own chat template runs.

Jinja's immutable sandbox keeps a template from leaving (no underscore attributes, no changing of what it is
given). Besides, a template may neither run for ever nor fill the memory: loop steps, calls, filters and all
that is put out are counted, and operations that multiply sizes are checked before they are done. The limits
(``budget``) are far above what templates of real models need.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sized
from datetime import datetime
from typing import Any, cast

from jinja2 import nodes, pass_context
from jinja2.exceptions import TemplateRuntimeError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from .budget import MAX_STEPS, Budget, TemplateCostError, check_format, check_width


class RefusedByTemplate(TemplateRuntimeError):
    """The template called ``raise_exception``."""


def raise_exception(message: str) -> None:
    """Lets a template refuse messages, as Hugging Face's templates do."""
    raise RefusedByTemplate(str(message))


def strftime_now(format_: str) -> str:
    """The local time, formatted."""
    check_format(format_)
    return datetime.now().strftime(format_)


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without Jinja's HTML escapes, as Hugging Face's templates expect."""
    check_width(indent)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class GenerationTag(Extension):
    """``{% generation %}…{% endgeneration %}`` marks the assistant's words for training; here: its body."""

    tags = {"generation"}  # noqa: RUF012 - as declared by Jinja

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Counted:
    """An iterable whose steps are counted."""

    def __init__(self, items: Iterable[Any], step: Callable[[], None]) -> None:
        self._items, self._step = items, step

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._step()
            yield item


class _CountedSized(_Counted):
    """The same with a length, for ``loop.length``."""

    def __len__(self) -> int:
        assert isinstance(self._items, Sized)
        return len(self._items)


class _Meter(NodeTransformer):
    """Sends what loops iterate over, what is put out, and what ``~`` joins, through filters that count."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _filter(cast("nodes.Expr", node.iter), "_counted")
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Output:
        self.generic_visit(node)
        node.nodes = [
            _filter(nodes.Const(part.data) if isinstance(part, nodes.TemplateData) else part, "_out")
            for part in node.nodes
        ]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes), "_concat")


def _filter(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Sandboxed and metered, with the names that Hugging Face's chat templates use.

    One environment renders one text at a time; ``budget.reset()`` begins each.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
        self.budget = Budget()
        self.filters["tojson"] = tojson
        self.filters.update({name: self._metered(name, filter_) for name, filter_ in self.filters.items()})
        self.filters.update(_counted=self._counted, _out=self._out, _concat=self._concat)
        del self.globals["lipsum"]
        self.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, range=self._range)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        metered = _Meter().visit(source)
        metered.set_environment(self)
        return super()._generate(metered, *args, **kwargs)

    def _metered(self, name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
        budget = self.budget
        skipped = 1 if hasattr(filter_, "jinja_pass_arg") else 0  # a context or environment comes first

        @functools.wraps(filter_)
        def metered(*args: Any, **kwargs: Any) -> Any:
            budget.step()
            values = (*args[skipped:], *kwargs.values())
            if name in ("batch", "slice", "center", "wordwrap", "indent"):
                for value in values[1:]:
                    check_width(value)
                if name == "indent":
                    text, width = str(values[0]), values[1] if len(values) > 1 else 4
                    budget.replace(text, "\n", " " * (width if isinstance(width, int) else len(width)))
            elif name == "replace" and len(values) >= 3:
                budget.replace(*values[:3])
            elif name == "format":
                check_format(str(values[0]))
            elif name == "join" and not isinstance(values[0], str) and "attribute" not in kwargs:
                items = list(values[0])
                budget.join(str(values[1] if len(values) > 1 else ""), items)
                args = (*args[:skipped], items, *args[skipped + 1 :])
            return budget.made(filter_(*args, **kwargs))

        return metered

    def _counted(self, items: Any) -> Any:
        if not hasattr(items, "__iter__"):
            return items  # Jinja says in its own words that this cannot be iterated
        return (_CountedSized if isinstance(items, Sized) else _Counted)(items, self.budget.step)

    @pass_context
    def _out(self, _: Context, value: Any) -> str:
        text = str(value)
        self.budget.size(len(text))
        return text

    def _concat(self, items: list[Any]) -> str:
        parts = [str(item) for item in items]
        self.budget.join("", parts)
        return "".join(parts)

    @staticmethod
    def _range(*args: int) -> range:
        made = range(*args)
        if len(made) > MAX_STEPS:
            raise TemplateCostError(f"a range of {len(made):,}")
        return made

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls ``obj`` if it is safe; counted, and checked where it multiplies a text's size."""
        self.budget.step()
        method = getattr(obj, "__wrapped__", obj)  # Jinja wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            self.budget.str_method(owner, getattr(method, "__name__", ""), (*args, *kwargs.values()))
        return self.budget.made(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Does ``left operator right`` unless its result would be too large."""
        self.budget.binop(operator, left, right)
        return super().call_binop(context, operator, left, right)
