"""OpenAI Agents' conversations, interrupted runs and model calls, kept by Perdure.

    session = PerdureSession("conversation-1", url="agents.db")
    result = await Runner.run(agent, "Where is my money?", session=session)

Needs the SDK: ``pip install perdure[openai-agents]``.
"""

from perdure.integrations.openai_agents.conversation import Conversation, SavedRun
from perdure.integrations.openai_agents.model import RecordedModel
from perdure.integrations.openai_agents.run_states import ContextCodec, PerdureRunStates
from perdure.integrations.openai_agents.session import PerdureSession, RunSession

__all__ = [
    "ContextCodec",
    "Conversation",
    "PerdureRunStates",
    "PerdureSession",
    "RecordedModel",
    "RunSession",
    "SavedRun",
]
