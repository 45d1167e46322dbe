"""Promises broken on purpose, one line of code each, and the tests that must notice."""

from __future__ import annotations

from msgspec import Struct


class Mutation(Struct, frozen=True):
    """One way to break the code.

    Attributes:
        name: what is broken, in words.
        path: the file, from the root of the checkout.
        before, after: the text that is replaced; it must be there exactly once.
        tests: the smallest set that should notice, as pytest takes it.
    """

    name: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]


_SQLITE = "src/perdure/storage/sqlite/"
_POWER = "tests/powerloss/test_power_loss.py"

MUTATIONS = (
    Mutation(
        "a commit is not synced before it is acknowledged",
        _SQLITE + "connection.py",
        'connection.pragma("synchronous", synchronous)',
        'connection.pragma("synchronous", "NORMAL")',
        (_POWER, "-k", "survives and edits"),
    ),
    Mutation(
        "a tool's intent is written after the call",
        "src/perdure/engine/journal/replay.py",
        """            yield RecordEffect(Riders((tries.intent(),), sync=True), point=point)
            value = yield from _invoke(call, "tool", tries)
""",
        """            value = yield from _invoke(call, "tool", tries)
            yield RecordEffect(Riders((tries.intent(),), sync=True), point=point)
""",
        ("tests/engine/test_policies.py",),
    ),
    Mutation(
        "an append does not check the lease's epoch",
        _SQLITE + "queries/log.sql",
        "AND seq = ?4 AND held IS ?5 AND EXISTS",
        "AND seq = ?4 AND (?5 IS ?5) AND EXISTS",
        ("tests/contract/test_backends.py", "-k", "i4_only_the_current_epoch_appends"),
    ),
    Mutation(
        "a plain commit on PostgreSQL does not compare the one before it",
        "src/perdure/storage/postgres/queries.sql",
        "      AND c.header = $7\n",
        "",
        ("tests/postgres/test_plain.py",),
    ),
    Mutation(
        "a commit takes the lease though somebody has it",
        _SQLITE + "queries/log.sql",
        "AND seq = ?4 AND held IS NULL AND epoch = ?5 - 1 AND EXISTS",
        "AND seq = ?4 AND EXISTS",
        ("tests/contract/test_backends.py", "-k", "i4 and by_a_commit"),
    ),
    Mutation(
        "a run begins though its end was asked for",
        _SQLITE + "append.py",
        "looks += [(row.id, None, taken) for row in item.riders.runs]",
        "pass",
        ("tests/contract/test_backends.py", "-k", "whose_end_was_asked_for"),
    ),
    Mutation(
        "a run ends over what asked for it too late",
        _SQLITE + "queries/inbox.sql",
        "    OR kind IN ('start', 'cancel') AND",
        "    OR kind = 'cancel' AND",
        ("tests/contract/test_backends.py", "-k", "asked_for_it_too_late"),
    ),
    Mutation(
        "undo does not ask whether later commits touched the same",
        "src/perdure/core/undo/inverse.py",
        "if places.touched_by(op):",
        "if False:",
        ("tests/state/test_undo.py",),
    ),
    Mutation(
        "undo compares places in a list with those that it had between an edit and its undo",
        "src/perdure/core/undo/standing_edits.py",
        "            if not seqs.issuperset(inside[",
        "            if False and not seqs.issuperset(inside[",
        ("tests/state/test_standing.py",),
    ),
    Mutation(
        "what stands by its redo is taken back as it was first made",
        "src/perdure/core/undo/standing_edits.py",
        "if (own and self.own and self.own[-1] > undo) or self._moves(since, seq, ended):",
        "if self._moves(since, seq, ended):",
        ("tests/property/test_layers.py", "tests/state/test_standing.py"),
    ),
    Mutation(
        "undo goes behind a migration",
        "src/perdure/core/undo/undo_plan.py",
        "if oldest.schema_version[0] != major:",
        "if False:",
        ("tests/state/test_undo_across_versions.py",),
    ),
    Mutation(
        "an idempotency key is not compared with what it was used for",
        "src/perdure/state/edit_block.py",
        "if before != asked(cause.what, *declared):",
        "if False:",
        ("tests/state/test_keys.py",),
    ),
    Mutation(
        "a payload is not compared with the digest in its header",
        "src/perdure/core/format/chain.py",
        "if envelope.digest(data) != expected:",
        "if False:",
        ("tests/crash/test_flipped_bits.py",),
    ),
    Mutation(
        "nobody looks whether the WAL is still ours",
        _SQLITE + "files.py",
        "            if self.wal is not None:\n",
        "            if False:\n",
        ("tests/crash/test_sqlite_files.py", "-k", "deleted_wal or drops_our_locks"),
    ),
    Mutation(
        "the mark of a header that a power cut tore is believed",
        _SQLITE + "file_complete.py",
        "if commit is not None and frames.may_be_patched(number):",
        "if False:",
        ("tests/crash/test_wal.py",),
    ),
    Mutation(
        "a key that a refused commit took is not given back",
        _SQLITE + "append.py",
        '    if not isinstance(outcome, Appended):\n        do(db, "put_back_key"',
        '    if False:\n        do(db, "put_back_key"',
        ("tests/contract",),
    ),
    Mutation(
        "a fork of a thread goes on with the lists of what it was forked from",
        "src/perdure/integrations/langgraph/threads/thread_commits.py",
        "own=not place.new",
        "own=True",
        ("tests/integrations/langgraph/test_random_threads.py",),
    ),
    Mutation(
        "messages that say themselves when they are equal are taken for the same",
        "src/perdure/integrations/langgraph/threads/state_changes.py",
        "usual = messages and all(kind.__eq__ is _USUALLY for kind in kinds)",
        "usual = messages",
        ("tests/integrations/langgraph/test_sources.py",),
    ),
    Mutation(
        "writes whose checkpoint is far behind do not wait for it",
        "src/perdure/integrations/langgraph/threads/queued_writes.py",
        "if space.coming and request.patient and request.id not in space.coming:",
        "if False:",
        ("tests/integrations/langgraph/test_together.py",),
    ),
    Mutation(
        "writes that are cancelled in a commit are given up while it goes on",
        "src/perdure/integrations/langgraph/threads/queued_writes.py",
        "return self._spaces[request.namespace].withdraw(request)",
        "return True",
        ("tests/integrations/langgraph/test_together.py",),
    ),
    Mutation(
        "room in the WAL is made over its last frame",
        _SQLITE + "wal.py",
        "end = wal.xFileSize()",
        "end = max(wal.xFileSize() - 5000, 32)",
        ("tests/crash/test_wal.py",),
    ),
    Mutation(
        "after a failed sync the WAL is not written again",
        _SQLITE + "writer.py",
        "            write_wal_again(connection, self._path)\n",
        "",
        ("tests/powerloss/test_failed_syncs.py",),
    ),
    Mutation(
        "what nobody was told of stays in the WAL after a failed sync",
        _SQLITE + "writer.py",
        "connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)\n            sync_wal",
        "connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)\n            sync_wal",
        ("tests/powerloss/test_failed_syncs.py",),
    ),
    Mutation(
        "whoever opens a store after a failed sync is not told",
        _SQLITE + "writer.py",
        "self._suspect, self._lacked_room = is_in_doubt(path), False",
        "self._suspect, self._lacked_room = False, False",
        ("tests/powerloss/test_failed_syncs.py",),
    ),
    Mutation(
        "a run's lease is given back before its last commit",
        "src/perdure/engine/dispatch/conclusion.py",
        """        if self._commit(execution, "run-finished", record, row).status != status:
""",
        """        self.release()
        if self._commit(execution, "run-finished", record, row).status != status:
""",
        ("tests/engine/test_standby.py", "tests/engine/test_replay.py"),
    ),
    Mutation(
        "a message is not taken out by the commit that takes it in",
        _SQLITE + "append.py",
        '        do(db, "consume_messages", (ids_json(item.riders.consumed),))\n',
        "        pass\n",
        ("tests/contract/test_backends.py", "-k", "a_message_goes_with_its_commit"),
    ),
    Mutation(
        "a run ends over a signal that nobody read",
        "src/perdure/state/runs/unused_signals.py",
        "return {self.run: self.last_no}",
        "return {}",
        ("tests/engine/test_late_signals.py",),
    ),
    Mutation(
        "retention removes before the log says so",
        "src/perdure/retention/trimming.py",
        "            _say(context, reader, word)\n",
        "            gone = dict.fromkeys(word.seqs(), remains.REMOVED)\n"
        "            context.backend.trim(reader.no, word.previous, gone)\n"
        "            _say(context, reader, word)\n",
        ("tests/state/test_trimming.py", "-k", "killed"),
    ),
    Mutation(
        "a branch may be built on what retention is about to remove",
        _SQLITE + "append.py",
        "        if item.riders.trims != (ref.seq if ref is not None else 0):\n",
        "        if False:\n",
        ("tests/contract/test_backends.py", "-k", "without_knowing_what_went"),
    ),
    Mutation(
        "retention does not look at what came before its word",
        "src/perdure/storage/retention.py",
        "            or not all(map(self.keeps_state, commit.parents))\n",
        "",
        ("tests/state/test_trimming.py", "-k", "between_the_look"),
    ),
    Mutation(
        "a snapshot may share a leaf that is gone",
        _SQLITE + "append.py",
        "    return found == len(set(shared))\n",
        "    return True\n",
        ("tests/state/test_trimming.py", "-k", "leaves_that_went"),
    ),
    Mutation(
        "retention does not see what an unfinished run needs",
        "src/perdure/retention/trimming.py",
        "min((run.turn_at for run in runs if run.agent_no == reader.no), default=SEQ_END)",
        "SEQ_END",
        ("tests/state/test_trimming.py", "-k", "unfinished"),
    ),
)
