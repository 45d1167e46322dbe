"""The order of a run: this function, on this agent, under this key, with these arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from perdure.core.arguments.bounds import NAME_MAX, RUN_ID_BYTES_MAX, index_key
from perdure.core.arguments.checks import Seconds, seconds
from perdure.core.arguments.names import check_name, shown
from perdure.core.format import chain
from perdure.core.format.records import Completed, Resumed, Started, Turn
from perdure.core.format.rows import order_of
from perdure.core.format.stored_records import plain_of
from perdure.core.values.plain_values import Plain
from perdure.engine.functions.agent_functions import spec_of
from perdure.engine.functions.time_taken import earlier
from perdure.engine.journal.call_identity import FORM, digests
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.left_history import Origins
from perdure.engine.journal.previews import preview
from perdure.engine.journal.values import Stored, binding_of, fitting, parameters_of
from perdure.errors import Conflict, Corrupt, NotFound, PerdureError, SchemaError
from perdure.model import MAIN, AgentInfo, Commit, Message, RunInfo
from perdure.state.initial_state import Brought
from perdure.state.runs.run_rows import args_digest as args_digest
from perdure.storage.appending import NOTHING, Riders
from perdure.storage.capabilities import Backend
from perdure.storage.log.proposals import HERE
from perdure.storage.looks import Look, Reads


def run_id(agent: str, function: str, key: str, incarnation: int = 1) -> str:
    """A run is named by agent, function and key, and by the agent's incarnation after the first.

    The id separates them by ``/`` and ``~``, which are escaped as in URLs where a name has them.
    """
    parts = (agent, function, key)
    joined = "/".join(
        part.replace("%", "%25").replace("/", "%2F").replace("~", "%7E") for part in parts
    )
    named = joined + (f"~{incarnation}" if incarnation > 1 else "")
    if len(named) * 4 > RUN_ID_BYTES_MAX and len(named.encode()) > RUN_ID_BYTES_MAX:
        raise ValueError(
            f"the names of agent and function and the run's key have {RUN_ID_BYTES_MAX} bytes at "
            f"most together, as {shown(named)} does not: give one of them a shorter name"
        )
    return named


def deadline_us(deadline: Seconds | None, name: str = "deadline=") -> int:
    """Returns the time that a run may take, in microseconds; 0 for no limit. `name`: of the
    argument.

    Raises:
        TypeError: it is not a time. ValueError: it has passed already, or is too far away.
    """
    if deadline is None:
        return 0
    said = seconds(deadline, name)
    if said <= 0:
        raise ValueError(
            f"{name}{shown(deadline)}: it is the time that a run may take, and has passed "
            "before it begins"
        )
    return max(1, round(said * 1e6))


class Order(Struct, frozen=True):
    """An order of a run.

    Attributes:
        digests: digests of the arguments, by name; they decide if two orders are the same.
        input: the arguments as plain data, positional and named; None: they cannot be stored, and
            only a caller that has them can continue the run.
        origin: seq and id of a commit of the log of `parent`, in the turn that makes the order;
            None: there is no parent, or an older version made it.
        deadline_us: the time that it may take from its begin, in microseconds; 0 for no limit.
        until_us: the moment by which it must have ended with `parent`, in microseconds since 1970;
            0 for none.
        limit_us: the time that it may take while somebody executes it or it waits, in microseconds;
            0 for no limit.
        trace: the trace id of its commits.
        first: the state to create the agent with; None: the agent was there when the run was
            requested, or nobody said.
        branch: the branch that it begins on; on another one than main, its key ends with that.
    """

    agent: str
    function: str
    key: str
    digests: Mapping[str, str]
    preview: str
    input: tuple[list[Plain], dict[str, Plain]] | None
    version: str = ""
    queue: str = "default"
    parent: str = ""
    deadline_us: int = 0
    until_us: int = 0
    limit_us: int = 0
    origin: tuple[int, bytes] | None = None
    trace: str | None = None
    first: Brought | None = None
    branch: str = MAIN

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        agent: str,
        key: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        queue: str = "default",
        parent: str = "",
        deadline: Seconds | None = None,
        time_limit: Seconds | None = None,
        trace: str | None = None,
        storable: bool = True,
        branch: str = MAIN,
    ) -> Order:
        """Returns the order of a call.

        Args:
            storable: refuse arguments that cannot be stored.

        Raises:
            SchemaError: an argument does not fit its declared type; Unstorable: one cannot be
                stored.
        """
        agent = check_name(agent, "an agent")
        key, queue = check_name(key, "a run's key"), check_name(queue, "a queue")
        spec = spec_of(function)
        arguments = binding_of(function).bind(args, kwargs)
        given: tuple[list[Plain], dict[str, Plain]] | None = None
        try:
            taken = parameters_of(function).take(args, kwargs)
            fitting(list(taken), "arguments")
            given = taken
        except PerdureError as error:
            if storable or type(error) is SchemaError:
                raise
        return cls(
            agent,
            spec.name,
            key,
            digests(arguments),
            preview(arguments),
            given,
            spec.version,
            queue,
            parent,
            deadline_us(deadline),
            limit_us=deadline_us(time_limit, "time_limit="),
            trace=trace,
            branch=branch,
        )

    @property
    def args(self) -> str:
        """One digest of all arguments."""
        return args_digest(self.digests)

    def completed(self, function: Callable[..., Any]) -> Order:
        """With all that the classes of the function's arguments fill in anew each time: who
        requested the run gave plain data, or has an older program."""
        if self.input is None:
            return self
        return replace(self, input=parameters_of(function).completed(self.input))

    def look(self, backend: Backend) -> Look:
        """A look at the agent, and at this run, if it is of the agent's first incarnation."""
        return Look(backend, self.agent, run_id(self.agent, self.function, self.key, 1)).again()

    def run_id(self, backend: Reads) -> str:
        """The id of this run, of the agent that is there or of the next one of its name."""
        return self.run_id_beside(backend.agent(self.agent))

    def run_id_beside(self, info: AgentInfo | None) -> str:
        """The id of this run, where that is the latest agent of its name."""
        incarnation = 1 if info is None else info.incarnation + bool(info.deleted)
        return run_id(self.agent, self.function, self.key, incarnation)

    def begin(self, run: str) -> Started:
        """The record of its begin."""
        return Started(
            run=run,
            function=self.function,
            key=self.key,
            args=dict(self.digests),
            preview=self.preview,
            version=self.version,
            queue=self.queue,
            parent=self.parent,
            digests=FORM,
            input=self.input,
            deadline=self.deadline_us,
            until=self.until_us,
            limit=self.limit_us,
            origin=self.origin,
            trace=self.trace,
        )

    def to_plain(self) -> dict[str, Plain]:
        """For a message that asks for it."""
        plain = plain_of(self.begin(""))
        del plain["t"]
        if self.first is not None:
            plain["first"] = self.first.to_plain()
        if self.branch != MAIN:
            plain["branch"] = self.branch
        return plain

    @classmethod
    def begun(cls, agent: str, began: Started) -> Order:
        """From the record of its begin."""
        return cls(
            agent,
            began.function,
            began.key,
            dict(began.args),
            began.preview,
            began.input,
            str(began.version),
            str(began.queue or "default"),
            str(began.parent),
            began.deadline,
            began.until,
            began.limit,
            origin=began.origin,
            trace=began.trace,
        )

    @classmethod
    def asked(cls, message: Message) -> Order:
        """Returns the order in a message.

        Raises:
            Corrupt: it is none. No hash is made of a message that waits.
        """
        value: Any = message.value
        try:
            order = cls.begun(message.agent, order_of(value))
            first = Brought.from_plain(value.get("first"))
            if first is None and "branch" not in value:
                return order
            return replace(order, first=first, branch=branch_asked(message))
        except (TypeError, ValueError) as error:
            raise Corrupt(
                f"what asks for a run of it says something else ({shown(message.value)})",
                target=f"agent {message.agent!r}",
                hint=chain.HINT,
            ) from error


def check_branch(branch: str) -> str:
    """Returns the name of a branch that runs can be on.

    Raises:
        TypeError, ValueError: it is none; those that begin with @ are the store's own.
    """
    branch = check_name(branch, "a branch")
    if branch.startswith("@"):
        raise ValueError(f"branches that begin with @ are the store's own: {shown(branch)}")
    return branch


def key_on(key: str, branch: str) -> str:
    """Returns the key that names a run on a branch: ``main@what-if``."""
    return key if branch == MAIN or key.endswith(f"@{branch}") else key_of_fork(key, branch)


def key_of_fork(key: str, branch: str) -> str:
    """Returns the key of a run's fork on a branch."""
    named = f"{key}@{branch}"
    return named if len(named) <= NAME_MAX else index_key(named)


def branch_asked(message: Message) -> str:
    """Returns the branch that a requested run is to begin on."""
    value: Any = message.value
    return value.get("branch", MAIN) if type(value) is dict else MAIN


def branch_of(order: Order, begun: RunInfo | None, look: Look) -> str:
    """Returns the branch of a run: the one that it began on, or that it was requested for."""
    if begun is not None:
        return begun.branch
    asked = look.inbox("start") if "@" in order.key else ()
    return branch_asked(asked[0]) if asked else order.branch


def refuse_others(order: Order, run: str, info: RunInfo | None, asked: Sequence[Message]) -> None:
    """Raises Conflict: the run was begun, or asked for by these messages, with other arguments, or
    on another branch."""
    begun = [(info.args, info.branch)] if info is not None else []
    begun += [(Order.asked(message).args, branch_asked(message)) for message in asked[-1:]]
    if not begun:
        return
    args, branch = begun[-1]
    if args != order.args:
        raise Conflict(
            f"was started with other arguments than {order.preview or 'none'}",
            target=f"run {run}",
            hint="another command needs another key: store.options(key=…).run(…), "
            f"not {order.key!r}",
        )
    if order.branch not in (MAIN, branch):
        raise Conflict(
            f"is on branch {branch!r}, not on {order.branch!r}",
            target=f"run {run}",
            hint="use another key",
        )


def refuse_branch(order: Order, reads: Reads) -> None:
    """Refuses a new run on a branch that is not there; and one whose key ends as if it chose a
    branch, as those of runs on another branch than main end.

    Raises:
        NotFound: there is no such branch.
        Conflict: there is the one of that key, and the run would begin on main.
    """
    if order.branch != MAIN:
        if not _has_branch(order, order.branch, reads):
            raise NotFound(
                f"has no branch {order.branch!r}",
                target=f"agent {order.agent!r}",
                hint=f"agent.fork({order.branch!r}) makes it",
            )
        return
    branch = order.key.rpartition("@")[2]
    if "@" in order.key and branch not in ("", MAIN) and _has_branch(order, branch, reads):
        raise Conflict(
            f"has a branch {branch!r}, which the key {order.key!r} does not choose: a key is only "
            f"a name, and a new run begins on {MAIN}",
            target=f"agent {order.agent!r}",
            hint=f"store.options(branch={branch!r}) begins it there; for one on {MAIN}, use a key "
            f"that does not end with {f'@{branch}'!r}",
        )


def _has_branch(order: Order, branch: str, reads: Reads) -> bool:
    info = reads.agent(order.agent)
    ref = None if info is None or info.deleted else reads.ref(info.no, branch)
    return ref is not None and ref.kind == "branch" and not ref.deleted


def brought_by(order: Order, look: Look) -> Brought | None:
    """Returns the state to create the agent with, as who requested the run said; else its
    caller."""
    asked = look.inbox("start")
    return Order.asked(asked[0]).first if asked else order.first


def starting(
    order: Order, function: Callable[..., Any], run: str, branch: str, asked: Sequence[Message]
) -> tuple[Riders, str | None]:
    """Returns the additions to the commit with which a run of a function begins, and its trace id.
    The run is of this function's version.

    Args:
        asked: the messages that requested it. They have more than a call does: the run's parent,
            queue and deadline.
    """
    if asked:
        order = Order.asked(asked[0])
    order = replace(order.completed(function), version=spec_of(function).version)
    began = replace(order.begin(run), compensate=spec_of(function).compensate)
    riders = Riders(
        records=[began],
        runs=[begun_row(order, run, branch)],
        consumed=[message.no for message in asked],
        fresh=[run],
    )
    return riders, order.trace


def begun_row(order: Order, run: str, branch: str) -> RunInfo:
    """Returns the row of a run that begins with the commit that writes it."""
    return RunInfo(
        run,
        order.agent,
        0,
        branch,
        order.function,
        order.key,
        "running",
        HERE,
        args=order.args,
        turn_at=HERE,
        version=order.version,
        queue=order.queue,
        parent=order.parent,
        started_at_micros=HERE,
    )


def read_turn(
    first: Commit, began: Commit, origins: Origins, deadline: int
) -> tuple[Any, int, str | None]:
    """Returns the arguments of a run's turn, None if they could not be stored; the moment of its
    deadline, in microseconds since 1970, 0 without one; and the run's trace id.

    Args:
        first, began: the commits that began the run, and the turn.
        deadline: as it was before.
    """
    given, trace = None, None
    since = origins.back or first  # a run that is set back has its time anew
    for record in first.typed:
        if isinstance(record, Started) and record.run in origins.runs:
            given, trace = record.input, record.trace
            if record.deadline:
                # Whole milliseconds: the log's time runs ahead of a clock that stands.
                deadline = (since.at_micros + record.deadline) // 1000 * 1000
            if origins.back is None:  # who set it back means it to go on, also behind its parent
                deadline = earlier(deadline, record.until)
    for record in began.typed:
        if isinstance(record, Turn) and record.run in origins.runs:
            given, told = record.input, record.deadline_at
            if origins.back is None and told is not UNSET:  # an earlier one may be set back
                deadline = told
    return given, deadline, trace


def completing(
    function: Callable[..., Any], run: str, journal: Journal, given: Stored | None
) -> tuple[Stored | None, Riders]:
    """Returns the stored arguments of a run's turn as its function gets them, and what must be
    recorded of that: an older program began the turn, and the arguments lack what their classes
    fill in now.

    Args:
        given: as the turn began; None if they could not be stored.
    """
    given = journal.input[1] if journal.input is not None else given
    whole = given and parameters_of(function).completed(given)
    if whole is given:
        return given, NOTHING
    return whole, Riders([Completed(run=run, input=whole)])


def resuming(row: RunInfo, spent: int | UnsetType = UNSET) -> Riders:
    """Returns the additions to the commit with which a stopped or waiting run continues.

    Args:
        spent: what it has taken of its time limit, if it has one.
    """
    row = replace(row, status="running", problem=None, waits="", wake_at_micros=0)
    return Riders(records=[Resumed(run=row.id, spent=spent)], runs=[row])
