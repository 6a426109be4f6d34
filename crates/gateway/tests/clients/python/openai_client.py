"""The openai library against an OpenAI-compatible server: one function for each scenario."""

import sys
from typing import Any

import openai

from runner import Run, answered, dumped, main, read_stream, retried, until_refused

WEATHER = {
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
CHAT_TOOLS = {"tools": [{"type": "function", "function": WEATHER}], "tool_choice": "required"}
RESPONSE_TOOLS = {"tools": [{"type": "function", **WEATHER}], "tool_choice": "required"}


def chat(run: Run, **more: Any) -> dict[str, Any]:
    raw = ask_chat(run, run.client(), **more)
    completion = raw.parse()
    choices = [
        {
            "index": choice.index,
            "text": choice.message.content,
            "role": choice.message.role,
            "tool_calls": [chat_call(call) for call in choice.message.tool_calls or []],
            "finish_reason": choice.finish_reason,
        }
        for choice in completion.choices
    ]
    return answered(common(completion) | {"choices": choices}, raw.headers)


def chat_stream(run: Run, **more: Any) -> dict[str, Any]:
    raw = ask_chat(run, run.client(), stream=True, **more)
    seen = ChatStream()
    broken = read_stream(raw.parse(), seen.take)
    return answered(seen.answer() | {"broken": broken}, raw.headers)


def chat_stream_usage(run: Run) -> dict[str, Any]:
    return chat_stream(run, stream_options={"include_usage": True})


def chat_stream_whole(run: Run) -> dict[str, Any]:
    """Reads to the end; what the library raises on the way is the result."""
    raw = ask_chat(run, run.client(), stream=True)
    return answered({"chunks": sum(1 for _ in raw.parse())}, raw.headers)


def chat_two_choices(run: Run) -> dict[str, Any]:
    return chat(run, n=2)


def chat_two_choices_stream(run: Run) -> dict[str, Any]:
    return chat_stream(run, n=2, stream_options={"include_usage": True})


def tools(run: Run) -> dict[str, Any]:
    return chat(run, **CHAT_TOOLS)


def tools_stream(run: Run) -> dict[str, Any]:
    return chat_stream(run, stream_options={"include_usage": True}, **CHAT_TOOLS)


def responses(run: Run, **more: Any) -> dict[str, Any]:
    raw = ask_responses(run, **more)
    return answered(response_answer(raw.parse()), raw.headers)


def responses_stream(run: Run, **more: Any) -> dict[str, Any]:
    raw = ask_responses(run, stream=True, **more)
    events: list[Any] = []
    broken = read_stream(raw.parse(), events.append)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    ended = [
        event.response for event in events if event.type in ("response.completed", "response.incomplete")
    ]
    answer = {
        "events": [event.type for event in events],
        "numbered_in_order": [event.sequence_number for event in events] == list(range(len(events))),
        "text": text,
        "ended": [response_answer(response) for response in ended],
        "broken": broken,
    }
    return answered(answer, raw.headers)


def responses_stream_whole(run: Run) -> dict[str, Any]:
    raw = ask_responses(run, stream=True)
    return answered({"events": sum(1 for _ in raw.parse())}, raw.headers)


def response_tools(run: Run) -> dict[str, Any]:
    return responses(run, **RESPONSE_TOOLS)


def response_tools_stream(run: Run) -> dict[str, Any]:
    return responses_stream(run, **RESPONSE_TOOLS)


def embeddings(run: Run, **more: Any) -> dict[str, Any]:
    """Without a format the library asks for base64 and decodes it."""
    raw = run.client().embeddings.with_raw_response.create(
        model=run.options.model, input=[run.options.prompt, "The hills."], **more
    )
    listed = raw.parse()
    vectors = [
        {
            "index": item.index,
            "length": len(item.embedding),
            "first": [round(x, 6) for x in item.embedding[:4]],
        }
        for item in listed.data
    ]
    answer = {"model": listed.model, "vectors": vectors, "usage": dumped(listed.usage)}
    return answered(answer, raw.headers)


def embeddings_float(run: Run) -> dict[str, Any]:
    return embeddings(run, encoding_format="float")


def completions(run: Run) -> dict[str, Any]:
    raw = ask_completions(run)
    completion = raw.parse()
    choices = [
        {"index": choice.index, "text": choice.text, "finish_reason": choice.finish_reason}
        for choice in completion.choices
    ]
    return answered(common(completion) | {"choices": choices}, raw.headers)


def completions_stream(run: Run) -> dict[str, Any]:
    raw = ask_completions(run, stream=True, stream_options={"include_usage": True})
    chunks: list[Any] = []
    broken = read_stream(raw.parse(), chunks.append)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    answer = {
        "chunks": len(chunks),
        "text": "".join(choice.text for choice in choices),
        "finish_reasons": [choice.finish_reason for choice in choices if choice.finish_reason],
        "usage": [dumped(chunk.usage) for chunk in chunks if chunk.usage],
        "broken": broken,
    }
    return answered(answer, raw.headers)


def models(run: Run) -> dict[str, Any]:
    raw = run.client().models.with_raw_response.list()
    return answered({"models": sorted(model.id for model in raw.parse())}, raw.headers)


def bad_key(run: Run) -> dict[str, Any]:
    return dumped_chat(run, run.client(api_key="not-a-key-of-anyone"))


def unknown_model(run: Run) -> dict[str, Any]:
    return dumped_chat(run, run.client(), model="no-such-model")


def never_fits(run: Run) -> dict[str, Any]:
    """With retries allowed, so that the attempts show whether the library tried again."""
    long_prompt = "sea " * run.options.long_words
    return dumped_chat(run, run.client(max_retries=2), messages=[{"role": "user", "content": long_prompt}])


def early_stop(run: Run) -> dict[str, Any]:
    """Leaves a stream after some chunks; the same client then asks again."""
    client = run.client()
    stream = ask_chat(run, client, stream=True).parse()
    seen = 0
    for _ in stream:
        seen += 1
        if seen == run.options.stop_after:
            break
    stream.close()
    following = ask_chat(run, client, max_tokens=1)
    return answered({"chunks": seen, "following": common(following.parse())}, following.headers)


def ask_chat(run: Run, client: Any, **more: Any) -> Any:
    asked = {
        "model": run.options.model,
        "messages": [{"role": "user", "content": run.options.prompt}],
        "max_tokens": run.options.max_tokens,
    }
    return client.chat.completions.with_raw_response.create(**(asked | more))


def ask_completions(run: Run, **more: Any) -> Any:
    options = run.options
    return run.client().completions.with_raw_response.create(
        model=options.model, prompt=options.prompt, max_tokens=options.max_tokens, **more
    )


def ask_responses(run: Run, **more: Any) -> Any:
    options = run.options
    return run.client().responses.with_raw_response.create(
        model=options.model, input=options.prompt, max_output_tokens=options.max_tokens, **more
    )


def dumped_chat(run: Run, client: Any, **more: Any) -> dict[str, Any]:
    raw = ask_chat(run, client, **more)
    return answered(common(raw.parse()), raw.headers)


def common(completion: Any) -> dict[str, Any]:
    return {
        "object": completion.object,
        "model": completion.model,
        "has_id": bool(completion.id),
        "has_created": completion.created is not None,
        "usage": dumped(completion.usage),
    }


def chat_call(call: Any) -> dict[str, Any]:
    return {"has_id": bool(call.id), "name": call.function.name, "arguments": call.function.arguments}


def response_answer(response: Any) -> dict[str, Any]:
    return {
        "object": response.object,
        "model": response.model,
        "has_id": bool(response.id),
        "status": response.status,
        "incomplete": dumped(response.incomplete_details),
        "text": response.output_text,
        "calls": [
            {"has_id": bool(item.call_id), "name": item.name, "arguments": item.arguments}
            for item in response.output
            if item.type == "function_call"
        ],
        "usage": dumped(response.usage),
    }


class ChatStream:
    """What a chat stream told, chunk by chunk."""

    def __init__(self) -> None:
        self.chunks: list[Any] = []

    def take(self, chunk: Any) -> None:
        self.chunks.append(chunk)

    def answer(self) -> dict[str, Any]:
        choices = [choice for chunk in self.chunks for choice in chunk.choices]
        indexes = sorted({choice.index for choice in choices})
        return {
            "chunks": len(self.chunks),
            "objects": sorted({chunk.object for chunk in self.chunks}),
            "ids": len({chunk.id for chunk in self.chunks}),
            "chunks_without_choices": sum(not chunk.choices for chunk in self.chunks),
            "choices": [self.choice([c for c in choices if c.index == index]) for index in indexes],
            "usage": [dumped(chunk.usage) for chunk in self.chunks if chunk.usage],
        }

    @staticmethod
    def choice(parts: list[Any]) -> dict[str, Any]:
        calls: dict[int, dict[str, Any]] = {}
        for call in (call for part in parts for call in part.delta.tool_calls or []):
            whole = calls.setdefault(call.index, {"has_id": False, "name": "", "arguments": ""})
            whole["has_id"] |= bool(call.id)
            whole["name"] += call.function.name or ""
            whole["arguments"] += call.function.arguments or ""
        return {
            "text": "".join(part.delta.content or "" for part in parts),
            "roles": [part.delta.role for part in parts if part.delta.role],
            "tool_calls": [calls[index] for index in sorted(calls)],
            "finish_reasons": [part.finish_reason for part in parts if part.finish_reason],
        }


SCENARIOS = {
    "chat": chat,
    "chat_stream": chat_stream,
    "chat_stream_usage": chat_stream_usage,
    "chat_stream_whole": chat_stream_whole,
    "chat_two_choices": chat_two_choices,
    "chat_two_choices_stream": chat_two_choices_stream,
    "tools": tools,
    "tools_stream": tools_stream,
    "responses": responses,
    "responses_stream": responses_stream,
    "responses_stream_whole": responses_stream_whole,
    "response_tools": response_tools,
    "response_tools_stream": response_tools_stream,
    "embeddings": embeddings,
    "embeddings_float": embeddings_float,
    "completions": completions,
    "completions_stream": completions_stream,
    "models": models,
    "bad_key": bad_key,
    "unknown_model": unknown_model,
    "never_fits": never_fits,
    "until_refused": lambda run: until_refused(run, lambda client: ask_chat(run, client)),
    "retry": lambda run: retried(run, lambda client: ask_chat(run, client)),
    "early_stop": early_stop,
}

if __name__ == "__main__":
    sys.exit(main(openai, openai.OpenAI, "/v1", SCENARIOS))
