"""Calls of a model as recorded steps of a durable run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, cast

from agents import Model, ModelResponse, MultiProvider
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest, ModelRetryNormalizedError
from openai.types.responses import Response, ResponseCompletedEvent, ResponseUsage
from pydantic import TypeAdapter

from perdure import AsyncRun
from perdure.core.arguments.checks import flag
from perdure.system.late_imports import optional

ADVICE = "retry_advice"
"""The attribute of an error of a model under which its advice is recorded."""

RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


class RecordedModel(Model):
    """A model whose answers are recorded in a durable run, each as a step.

    When the run is replayed after a crash it hears the same answers again, without asking: a model
    that is asked twice would say something else, and its tool calls would not be the recorded ones.

    It is not asked on if a tool call of the run took effect, or may have, and left with an error:
    the SDK tells the model that the tool failed, and to try again. The run ends with that error.

    Streamed, an answer comes in one piece.
    """

    def __init__(
        self, run: AsyncRun[Any], model: Model | str, *, knows_doubt: bool = False
    ) -> None:
        """
        Args:
            model: or its name, for the SDK's providers.
            knows_doubt: True: the model is asked on all the same, as you tell it of such a call, or
                have dealt with it.
        """
        self._run = run
        self._knows_doubt = flag(knows_doubt, "knows_doubt=")
        self._model = MultiProvider().get_model(model) if isinstance(model, str) else model

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        # What else is handed over (tools, settings, tracing) are objects of this process.
        async def model(system_instructions: str | None, input: Any) -> Any:
            # In here, so that it is recorded: a replay hears what was heard the first time.
            if self._run.doubt is not None and not self._knows_doubt:
                raise self._run.doubt
            try:
                response = await self._model.get_response(
                    system_instructions, input, *args, **kwargs
                )
            except Exception as error:
                self._note_advice(error, kwargs)
                raise
            return _recorded(response)

        return _heard(await self._run.call(model, system_instructions, input))

    async def stream_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: Any,
        *args: Any,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        # The SDK hands the same arguments to both.
        whole = await self.get_response(system_instructions, input, model_settings, *args, **kwargs)
        yield ResponseCompletedEvent(
            type="response.completed", sequence_number=0, response=_as_response(whole)
        )

    def _note_advice(self, error: Exception, asked: Mapping[str, Any]) -> None:
        """Notes on an error what the model says of another try, and what the SDK would find in it,
        which is recorded with it: the SDK looks outside of the step, where the response that the
        error came of is gone."""
        names = ("previous_response_id", "conversation_id")
        request = ModelRetryAdviceRequest(
            error, attempt=1, stream=False, **{name: asked.get(name) for name in names}
        )
        advice = self._model.get_retry_advice(request)
        with suppress(AttributeError, TypeError):  # an error that takes no attribute
            setattr(error, ADVICE, _plain(advice or ModelRetryAdvice(), _facts(error, advice)))

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Returns what the model said of another try when it failed."""
        said = getattr(request.error, ADVICE, None)
        return _as_advice(said) if isinstance(said, dict) else None

    def _supports_default_prompt_cache_key(self) -> bool:
        supports = getattr(self._model, "_supports_default_prompt_cache_key", None)
        return bool(supports()) if supports is not None else False

    async def _cleanup_on_run_end(self, owner: object) -> None:
        cleanup = getattr(self._model, "_cleanup_on_run_end", None)
        if cleanup is not None:
            await cleanup(owner)

    async def close(self) -> None:
        await self._model.close()


def _recorded(response: ModelResponse) -> dict[str, Any]:
    """Returns an answer as plain data, its items as the API itself names their fields."""
    rest = RESPONSE.dump_python(
        replace(response, output=[]), mode="json", exclude_unset=True, warnings=False
    )
    return {
        **rest,
        "output": [item.to_dict(mode="json", warnings=False) for item in response.output],
    }


def _heard(recorded: Mapping[str, Any]) -> ModelResponse:
    """Returns the answer that was recorded.

    Its items are built as openai's client builds them of what a server sends: one that lacks a
    field, or is of a kind that this client does not know, is taken as it is. A stricter look would
    refuse an answer that is paid for, and that the SDK understands.
    """
    response = RESPONSE.validate_python({**recorded, "output": []})
    return replace(response, output=Response.construct(output=recorded["output"]).output)


def _facts(error: Exception, advice: ModelRetryAdvice | None) -> ModelRetryNormalizedError | None:
    """Returns what the SDK itself finds in an error, such as after how long a header of its
    response says to ask again, with what the model says; where this SDK does not tell, the latter
    alone."""
    with suppress(Exception):  # of an odd error; that is what has to be told
        retrying = optional("agents.run_internal.model_retry")
        return cast("ModelRetryNormalizedError", retrying._normalize_retry_error(error, advice))
    return None if advice is None else advice.normalized


def _plain(advice: ModelRetryAdvice, facts: ModelRetryNormalizedError | None) -> dict[str, Any]:
    """Returns advice as plain data, with what is known of the error beside its message."""
    said = {one.name: getattr(advice, one.name) for one in fields(advice)}
    if facts is not None:
        names = sorted(getattr(facts, "_explicit_fields", frozenset()) - {"message"})
        said["normalized"] = {name: getattr(facts, name) for name in names}
    return said


def _as_advice(said: Mapping[str, Any]) -> ModelRetryAdvice:
    given = _known(ModelRetryAdvice, said)
    if given.get("normalized") is not None:
        facts = _known(ModelRetryNormalizedError, given["normalized"])
        given["normalized"] = ModelRetryNormalizedError(**facts)
    return ModelRetryAdvice(**given)


def _known(kind: type[ModelRetryAdvice | ModelRetryNormalizedError], said: Any) -> dict[str, Any]:
    """Returns what this SDK knows of what another release of it recorded."""
    known = {one.name for one in fields(kind)}
    return {name: item for name, item in said.items() if name in known}


def _as_response(whole: ModelResponse) -> Response:
    used = whole.usage
    usage = ResponseUsage(
        input_tokens=used.input_tokens,
        input_tokens_details=used.input_tokens_details,
        output_tokens=used.output_tokens,
        output_tokens_details=used.output_tokens_details,
        total_tokens=used.total_tokens,
    )
    return Response.construct(
        id=whole.response_id or "recorded",
        created_at=0,
        model="recorded",
        object="response",
        output=whole.output,
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
        usage=usage,
    )
