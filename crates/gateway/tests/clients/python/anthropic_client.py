"""The anthropic library against an Anthropic-compatible server: one function for each scenario."""

import sys
from typing import Any

import anthropic

from runner import Run, answered, dumped, main, read_stream, retried, until_refused

TOOLS = {
    "tools": [
        {
            "name": "weather",
            "description": "The weather in a city.",
            "input_schema": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        }
    ],
    "tool_choice": {"type": "any"},
}


def messages(run: Run, **more: Any) -> dict[str, Any]:
    raw = ask(run, run.client(), **more)
    return answered(message_answer(raw.parse()), raw.headers)


def messages_stream(run: Run, **more: Any) -> dict[str, Any]:
    raw = ask(run, run.client(), stream=True, **more)
    events: list[Any] = []
    broken = read_stream(raw.parse(), events.append)
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    ends = [event for event in events if event.type == "message_delta"]
    answer = {
        "events": [event.type for event in events],
        "text": "".join(delta.text for delta in deltas if delta.type == "text_delta"),
        "tool_input": "".join(delta.partial_json for delta in deltas if delta.type == "input_json_delta"),
        "started": [message_answer(event.message) for event in events if event.type == "message_start"],
        "stop_reasons": [event.delta.stop_reason for event in ends],
        "usage": [dumped(event.usage) for event in ends],
        "broken": broken,
    }
    return answered(answer, raw.headers)


def messages_stream_whole(run: Run) -> dict[str, Any]:
    """Reads to the end; what the library raises on the way is the result."""
    raw = ask(run, run.client(), stream=True)
    return answered({"events": sum(1 for _ in raw.parse())}, raw.headers)


def stream_helper(run: Run) -> dict[str, Any]:
    """The library's own helper puts the message together."""
    with run.client().messages.stream(**asked(run)) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
        return answered(message_answer(message) | {"text_streamed": text}, stream.response.headers)


def tools(run: Run) -> dict[str, Any]:
    return messages(run, **TOOLS)


def tools_stream(run: Run) -> dict[str, Any]:
    return messages_stream(run, **TOOLS)


def count_tokens(run: Run) -> dict[str, Any]:
    body = {name: value for name, value in asked(run).items() if name != "max_tokens"}
    raw = run.client().messages.with_raw_response.count_tokens(**body)
    return answered({"input_tokens": raw.parse().input_tokens}, raw.headers)


def bad_key(run: Run) -> dict[str, Any]:
    return dumped_message(run, run.client(api_key="not-a-key-of-anyone"))


def unknown_model(run: Run) -> dict[str, Any]:
    return dumped_message(run, run.client(), model="no-such-model")


def never_fits(run: Run) -> dict[str, Any]:
    """With retries allowed, so that the attempts show whether the library tried again."""
    long_prompt = "sea " * run.options.long_words
    return dumped_message(run, run.client(max_retries=2), messages=[{"role": "user", "content": long_prompt}])


def early_stop(run: Run) -> dict[str, Any]:
    """Leaves a stream after some events; the same client then asks again."""
    client = run.client()
    stream = ask(run, client, stream=True).parse()
    seen = 0
    for _ in stream:
        seen += 1
        if seen == run.options.stop_after:
            break
    stream.close()
    following = ask(run, client, max_tokens=1)
    return answered({"events": seen, "following": message_answer(following.parse())}, following.headers)


def ask(run: Run, client: Any, **more: Any) -> Any:
    return client.messages.with_raw_response.create(**(asked(run) | more))


def asked(run: Run) -> dict[str, Any]:
    return {
        "model": run.options.model,
        "messages": [{"role": "user", "content": run.options.prompt}],
        "max_tokens": run.options.max_tokens,
    }


def dumped_message(run: Run, client: Any, **more: Any) -> dict[str, Any]:
    raw = ask(run, client, **more)
    return answered(message_answer(raw.parse()), raw.headers)


def message_answer(message: Any) -> dict[str, Any]:
    blocks = message.content
    return {
        "type": message.type,
        "role": message.role,
        "model": message.model,
        "has_id": bool(message.id),
        "text": "".join(block.text for block in blocks if block.type == "text"),
        "tool_uses": [
            {"has_id": bool(block.id), "name": block.name, "input": block.input}
            for block in blocks
            if block.type == "tool_use"
        ],
        "stop_reason": message.stop_reason,
        "usage": dumped(message.usage),
    }


SCENARIOS = {
    "messages": messages,
    "messages_stream": messages_stream,
    "messages_stream_whole": messages_stream_whole,
    "stream_helper": stream_helper,
    "tools": tools,
    "tools_stream": tools_stream,
    "count_tokens": count_tokens,
    "bad_key": bad_key,
    "unknown_model": unknown_model,
    "never_fits": never_fits,
    "until_refused": lambda run: until_refused(run, lambda client: ask(run, client)),
    "retry": lambda run: retried(run, lambda client: ask(run, client)),
    "early_stop": early_stop,
}

if __name__ == "__main__":
    sys.exit(main(anthropic, anthropic.Anthropic, "", SCENARIOS))
