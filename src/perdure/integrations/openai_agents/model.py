"""Calls of a model as recorded steps of a durable run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from agents import Model, ModelResponse, MultiProvider
from openai.types.responses import Response, ResponseCompletedEvent, ResponseUsage
from pydantic import TypeAdapter

if TYPE_CHECKING:
    from perdure import AsyncRun

RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


class RecordedModel(Model):
    """A model whose answers are recorded in a durable run, each as a step.

    When the run is replayed after a crash it hears the same answers again, without asking: a model
    that is asked twice would say something else, and its tool calls would not be the recorded ones.

    Streamed, an answer comes in one piece.
    """

    def __init__(self, run: AsyncRun[Any], model: Model | str) -> None:
        """
        Args:
            model: or its name, for the SDK's providers.
        """
        self._run = run
        self._model = MultiProvider().get_model(model) if isinstance(model, str) else model

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        # What else is handed over (tools, settings, tracing) are objects of this process.
        async def model(system_instructions: str | None, input: Any) -> Any:
            response = await self._model.get_response(system_instructions, input, *args, **kwargs)
            return RESPONSE.dump_python(response, mode="json", exclude_unset=True, warnings=False)

        return RESPONSE.validate_python(await self._run.call(model, system_instructions, input))

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

    async def close(self) -> None:
        await self._model.close()


def _as_response(whole: ModelResponse) -> Response:
    used = whole.usage
    usage = ResponseUsage(
        input_tokens=used.input_tokens,
        input_tokens_details=used.input_tokens_details,
        output_tokens=used.output_tokens,
        output_tokens_details=used.output_tokens_details,
        total_tokens=used.total_tokens,
    )
    return Response(
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
