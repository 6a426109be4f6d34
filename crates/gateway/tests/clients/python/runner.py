"""Runs named scenarios of one client library and prints one JSON object with their results.

Each result holds `answer` (what must be equal straight from the engine and through the gateway;
ids and times are left out), `headers` (of the answer, those about budgets and identity),
`attempts` (every HTTP request that the library made) and, when the API refused, `error`.
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

HEADERS = ("x-ratelimit-", "anthropic-ratelimit-", "ratelimit", "retry-after", "x-should-retry",
           "x-fairlane-", "x-request-id", "request-id", "content-type")  # fmt: skip


class Run:
    """One scenario's settings and everything that its HTTP requests showed."""

    def __init__(self, sdk: Any, client_class: type, base_path: str, options: argparse.Namespace) -> None:
        self.sdk = sdk
        self.options = options
        self.attempts: list[dict[str, Any]] = []
        self._client_class = client_class
        self._base_path = base_path

    def client(self, *, api_key: str | None = None, max_retries: int | None = None) -> Any:
        """The library's own client, watched; retries as the options say unless given."""
        hooks = {"request": [self._sent], "response": [self._answered]}
        return self._client_class(
            base_url=self.options.base_url.rstrip("/") + self._base_path,
            api_key=self.options.api_key if api_key is None else api_key,
            max_retries=self.options.max_retries if max_retries is None else max_retries,
            default_headers=dict(header.split("=", 1) for header in self.options.header),
            timeout=self.options.timeout_seconds,
            http_client=self.sdk.DefaultHttpxClient(event_hooks=hooks),
        )

    def _sent(self, request: Any) -> None:
        retry_count = request.headers.get("x-stainless-retry-count")
        self.attempts.append({"sent_ms": milliseconds(), "retry_count": retry_count})

    def _answered(self, response: Any) -> None:
        told = {
            name: response.headers.get(name) for name in ("retry-after", "retry-after-ms", "x-should-retry")
        }
        self.attempts[-1] |= {"answered_ms": milliseconds(), "status": response.status_code, **told}


Scenario = Callable[[Run], dict[str, Any]]


def main(sdk: Any, client_class: type, base_path: str, scenarios: dict[str, Scenario]) -> int:
    """Runs what the command line names (everything if nothing) and prints the results."""
    options = read_options(scenarios)
    results = {}
    for name in options.scenario or scenarios:
        run = Run(sdk, client_class, base_path, options)
        started = milliseconds()
        try:
            result = scenarios[name](run)
        except sdk.APIError as refusal:
            result = {"error": described(refusal)}
        elapsed = milliseconds() - started
        results[name] = result | {"attempts": run.attempts, "elapsed_ms": elapsed}
    json.dump(
        {"client": f"{sdk.__name__}-python", "version": sdk.__version__, "results": results}, sys.stdout
    )
    print()
    return 0


def read_options(scenarios: dict[str, Scenario]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"any of: {', '.join(scenarios)}")
    parser.add_argument("--base-url", default=os.environ.get("FAIRLANE_BASE_URL"), help="without /v1")
    parser.add_argument("--api-key", default=os.environ.get("FAIRLANE_API_KEY", "none"))
    parser.add_argument("--model", default="sim")
    parser.add_argument("--prompt", default="Tell me about the sea.")
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--max-retries", type=int, default=0)
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--requests", type=int, default=50, help="bound of the scenarios that repeat")
    parser.add_argument("--stop-after", type=int, default=3, help="events read before an early stop")
    parser.add_argument("--long-words", type=int, default=50_000, help="words of the prompt that never fits")
    parser.add_argument("--timeout-seconds", type=float, default=60.0)
    options = parser.parse_args()
    if not options.base_url:
        parser.error("name the server by --base-url or FAIRLANE_BASE_URL")
    unknown = set(options.scenario) - set(scenarios)
    if unknown:
        parser.error(f"unknown scenario {', '.join(sorted(unknown))}: choose from {', '.join(scenarios)}")
    return options


def answered(answer: dict[str, Any], headers: Any) -> dict[str, Any]:
    """A result: what the API answered and the headers that matter."""
    return {"answer": answer, "headers": told_headers(headers)}


def told_headers(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower().startswith(HEADERS)}


def described(refusal: Any) -> dict[str, Any]:
    """A library's exception: its class, and what it carries of the answer."""
    response = getattr(refusal, "response", None)
    return {
        "class": type(refusal).__name__,
        "classes": [kind.__name__ for kind in type(refusal).__mro__ if kind.__name__.endswith("Error")],
        "message": str(refusal),
        "status": getattr(refusal, "status_code", None),
        "type": getattr(refusal, "type", None),
        "code": getattr(refusal, "code", None),
        "body": getattr(refusal, "body", None),
        "headers": told_headers(response.headers) if response is not None else {},
    }


def read_stream(stream: Any, take: Callable[[Any], None]) -> str | None:
    """Reads a stream to its end; the class of the exception that broke it, or None."""
    try:
        for event in stream:
            take(event)
    except Exception as broken:  # noqa: BLE001 - which class the library raises is the result
        return type(broken).__name__
    return None


def until_refused(run: Run, ask: Callable[[Any], Any]) -> dict[str, Any]:
    """Asks without retries until the API refuses, or the bound is reached."""
    client = run.client(max_retries=0)
    for succeeded in range(run.options.requests):
        try:
            ask(client)
        except run.sdk.APIStatusError as refusal:
            return {"answer": {"succeeded": succeeded}, "error": described(refusal)}
    return {"answer": {"succeeded": run.options.requests}}


def retried(run: Run, ask: Callable[[Any], Any]) -> dict[str, Any]:
    """Asks with the library's own two retries until one request needed a retry and was answered."""
    client = run.client(max_retries=2)
    for asked in range(1, run.options.requests + 1):
        run.attempts.clear()
        raw = ask(client)
        if len(run.attempts) > 1:
            answer = {"asked": asked, "retries_taken": raw.retries_taken, "waits": waits(run.attempts)}
            return answered(answer, raw.headers)
    return {"answer": {"asked": run.options.requests, "retries_taken": 0, "waits": []}}


def waits(attempts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each refused attempt: the wait that it was told and the wait that the library kept."""
    return [
        {
            "status": refused["status"],
            "told_seconds": refused["retry-after"],
            "told_ms": refused["retry-after-ms"],
            "waited_ms": following["sent_ms"] - refused["answered_ms"],
        }
        for refused, following in itertools.pairwise(attempts)
    ]


def milliseconds() -> int:
    return time.monotonic_ns() // 1_000_000


def dumped(model: Any) -> Any:
    """A library's object as plain data, without what the answer left out."""
    return model.model_dump(mode="json", exclude_unset=True) if model is not None else None
