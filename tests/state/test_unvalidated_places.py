"""Places that pydantic does not validate: what is read there is plain, whatever they declare."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, PlainValidator, SkipValidation

import perdure
from perdure.errors import Unstorable


class Step(BaseModel):
    cents: int = 0


class Size(Enum):
    SMALL = "small"


def as_it_is(value: Any) -> Any:
    return value


class Plan(BaseModel):
    steps: SkipValidation[list[Step]] = []
    named: Annotated[dict[str, Step], PlainValidator(as_it_is)] = {}
    sizes: SkipValidation[list[Size]] = []
    nested: SkipValidation[dict[str, list[Step]]] = {}
    counts: SkipValidation[list[int]] = []


def set_key(draft: Any) -> None:
    draft.named["a"] = Step(cents=2)


@pytest.mark.parametrize(
    "act",
    [
        lambda draft: draft.steps.append(Step(cents=1)),
        set_key,
        lambda draft: draft.sizes.append(Size.SMALL),
        lambda draft: draft.nested["a"].append(Step()),
    ],
)
def test_i12_an_instance_in_a_list_that_is_not_validated_is_refused(
    act: Callable[[Any], object],
) -> None:
    """A step was appended to a list that pydantic does not validate. The handle that did so showed
    a step, and every other one a dict: the program broke after its next start, at a commit that had
    been accepted."""
    with perdure.open("memory://") as store:
        agent = store.agent("x", Plan, initial=Plan(nested={"a": []}))
        agent.checkpoint("made")
        with pytest.raises(Unstorable, match="would come back as"):
            agent.update(act)
        assert agent.state == store.agent("x", Plan).state == Plan(nested={"a": []})
        agent.update(lambda draft: draft.counts.append(1))
        agent.update(lambda draft: draft.nested.update(b=[]))
        assert agent.state == store.agent("x", Plan).state
        assert agent.drift() == []
