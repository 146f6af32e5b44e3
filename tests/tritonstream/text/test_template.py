"""Chat templates: what real ones use works, what leaves the sandbox or costs too much is a typed refusal."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tritonstream.text import ChatTemplate, PromptError, TemplateError, check_messages

USER = [{"role": "user", "content": "Hi"}]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
    "{{ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def test_chatml() -> None:
    template = ChatTemplate(CHATML)
    assert template.render(USER) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(USER, add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


def test_what_templates_of_hugging_face_use() -> None:
    source = """
{{- bos_token }}
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}
    {%- if message.role == "system" %}{% continue %}{% endif %}
    {%- set ns.last = loop.index0 %}
    {{- loop.index }}/{{ loop.length }} {{ message.content | trim }}
    {%- if loop.last %}{% break %}{% endif %}
{%- endfor %}
{%- generation %} {{ tools | tojson(indent=None) }}{% endgeneration %}
{%- if strftime_now is defined and strftime_now("%Y") | int > 2000 %} dated{% endif %}
{{- " thinking" if enable_thinking else "" }} {{ ns.last }} {{ eos_token ~ "!" }}
"""
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": " Grüße <&> "}]
    text = template.render(messages, tools=[{"name": "<f>", "é": 1}], enable_thinking=True)
    # tojson escapes neither "<" (as Jinja's own does) nor "é"
    assert text == '<s>2/2 Grüße <&> [{"name": "<f>", "é": 1}] dated thinking 1 </s>!'


def test_blocks_are_trimmed_as_hugging_face_trims_them() -> None:
    source = "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n"
    assert ChatTemplate(source).render(USER) == "Hi\n"


def test_named_templates() -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    template = ChatTemplate(named)
    assert template.names == ("default", "tool_use")
    assert template.render(USER) == "plain"
    assert template.render(USER, tools=[{"type": "function"}]) == "tools"
    assert template.render(USER, name="tool_use") == "tools"
    with pytest.raises(TemplateError, match=r"no chat template 'rag'; it has default, tool_use"):
        template.render(USER, name="rag")


def test_a_template_may_refuse_messages() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TemplateError, match="refuses these messages: roles must alternate"):
        template.render(USER)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages.__init__ }}{{ ''.join.__self__.__class__.__base__.__subclasses__() }}",
        "{{ ('%s' | attr('__class__')).mro() }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ '{0.__class__}'.format('') }}{{ '{x.__class__.__mro__}'.format_map({'x': ''}) }}{{ 0 / 0 }}",
    ],
)
def test_there_is_no_way_out(source: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(source).render(USER)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ range(10 ** 9) | list }}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ ['a'] * 10 ** 9 }}",
        "{{ 9 ** 99 ** 9 }}",
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'a' | center(10 ** 9) }}",
        "{{ 'a'.rjust(10 ** 9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 1000000000) }}",
        "{{ 'aaaa'.replace('', 'b' * 9000000).replace('b', 'c' * 9000000) }}",
        "{{ ('a' * 9000000) | replace('a', 'b' * 9000000) }}",
        "{{ (['a' * 9000000] * 1000) | join }}",
        "{{ 'x'.join(['a' * 9000000] * 1000) }}",
        "{{ messages | tojson(indent=1000000000) }}",
        "{{ [1] | slice(1000000000) | list }}",
        "{{ [1] | batch(1000000000, 0) | list }}",
        "{{ 'a\nb' | indent(1000000000) }}",
        "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% for a in range(90000) %}{{ 'x' * 90000 }}{% endfor %}",
        "{% set x %}{% for a in range(90000) %}" + "y" * 9000 + "{% endfor %}{% endset %}",
        "{% for a in range(90000) %}{% set y = ('a' * 9000000) | upper %}{% endfor %}",
    ],
)
def test_cost_is_bounded(source: str) -> None:
    begun_s = time.thread_time()
    with pytest.raises(TemplateError, match=r"costs too much|recurses too deeply"):
        ChatTemplate(source).render(USER)
    assert time.thread_time() - begun_s < 5


def test_a_long_conversation_is_not_too_much() -> None:
    messages = [
        {"role": role, "content": "word " * 200} for _ in range(500) for role in ("user", "assistant")
    ]
    assert len(ChatTemplate(CHATML).render(messages)) > 1_000_000


@pytest.mark.parametrize(
    ("source", "named"),
    [("{% for %}", "broken in line 1"), ("{{ a | nofilter }}", "nofilter"), (7, "neither a text"),
     ([], "neither a text"),
     ([{"name": "default"}], "neither a text"), ("{{ x.y.z }}", "UndefinedError")],
)  # fmt: skip
def test_broken_templates_say_what_is_wrong(source: Any, named: str) -> None:
    with pytest.raises(TemplateError, match=named):
        ChatTemplate(source).render(USER)


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([], "messages is empty"),
        ("hi", "not a str"),
        (None, "not nothing"),
        ({"role": "user"}, "not a dict"),
        (["hi"], r"messages\[0\] must be an object"),
        ([{"content": "x"}], r"messages\[0\] has no role"),
        ([{"role": "user"}], r"messages\[0\] has no content"),
        ([{"role": "user", "content": 3}], "must be a text, not a int"),
        ([{"role": "user", "content": "\ud800"}], "lone surrogate"),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            r"content\[0\] is 'image_url'; this model takes text",
        ),
    ],
)
def test_messages_of_a_wrong_shape_are_refused(messages: Any, named: str) -> None:
    with pytest.raises(PromptError, match=named):
        ChatTemplate(CHATML).render(messages)


def test_text_parts_are_joined_and_tool_calls_need_no_content() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    calls = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    assert check_messages([{"role": "user", "content": parts}, calls]) == [
        {"role": "user", "content": "ab"},
        calls,
    ]


def test_one_template_serves_many_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    template = ChatTemplate(CHATML)
    with ThreadPoolExecutor(8) as pool:
        texts = pool.map(lambda n: template.render([{"role": "user", "content": str(n)}]), range(200))
    assert [int(re.findall(r"user\n(\d+)<", text)[0]) for text in texts] == list(range(200))


@pytest.mark.parametrize("content", [None, "", "I call f."])
def test_calls_that_the_template_never_shows_are_refused(content: str | None) -> None:
    call = {"role": "assistant", "content": content, "tool_calls": [{"function": {"name": "f"}}]}
    with pytest.raises(TemplateError, match=r"takes no tool_calls, .* those of messages\[1\]; write them"):
        ChatTemplate(CHATML).render([*USER, call])


@pytest.mark.parametrize(
    "shown", ["message.tool_calls[0].function.name", "message | tojson", "message.items() | list"]
)
def test_calls_that_the_template_shows_are_rendered(shown: str) -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look_up"}}]}
    text = ChatTemplate(f"{{% for message in messages %}}{{{{ {shown} }}}}{{% endfor %}}").render([call])
    assert "look_up" in text


def test_tools_that_the_template_never_shows_are_refused() -> None:
    with pytest.raises(TemplateError, match="takes no tools"):
        ChatTemplate("{{ messages[0].content }}").render(USER, tools=[{"type": "function"}])
