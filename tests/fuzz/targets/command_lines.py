"""Command lines to begin with: each command, and each of its arguments and options once."""

RUN = "ticket-42/support/main"
DOUBT = "ticket-43/support/main"

LINES = (
    "ls", "ls --json", "ls t -n 1", "show ticket-42", "show ticket-43 --json",
    "log ticket-42", "log ticket-42 --all --oldest-first -p --json -n 3",
    "log ticket-42 --branch what-if",
    "state ticket-42", "state ticket-42 --at 3 --json",
    "state ticket-42 --at 2026-08-12T14:03:22+02:00", "state ticket-42 --at 'before refund'",
    "diff ticket-42 1 3", "diff ticket-42 main what-if --json", "branches ticket-42", "stats",
    "stats ticket-42 --json", "fork ticket-42 new --at 2", "checkpoint ticket-42 point",
    "undo ticket-42", "redo ticket-42", "rollback ticket-42 3 --cancel-run --json",
    "runs", "runs --status done --agent ticket-42 --function support --older 1h --newer 7d --json",
    "runs ticket-42 --queue high -n 5 -r -u --failed", f"why {DOUBT}", f"why {RUN} --json",
    f"answer {DOUBT} yes --question q#1 --by anna", f"answer {DOUBT}",
    f"signal {DOUBT} go '{{\"a\": 1}}' --key k --by bob", f"cancel {DOUBT} --why enough",
    "cancel --all --yes --status pending --older 1d", f"resume {DOUBT} --json",
    "resume --all --yes", f"retry --from lookup#1 {RUN} --effects reuse",
    "retry --from lookup#1 --all --yes --agent ticket-42", f"run show {RUN}",
    f"run show {DOUBT} --json", f"run why {DOUBT}",
    f"run fork {RUN} again --from lookup#1 --effects live --key k2",
    "effects ticket-42", "effects ticket-43 --json -p -n 1",
    f"settle {DOUBT} refund#1 --done '{{\"receipt\": \"r\"}}' --by anna",
    f"settle {DOUBT} refund#1 --not-done --json", "verify", "verify ticket-42 --no-pages --json",
    "verify ticket-42 --anchor sha256:00", "repair", "export ticket-42 -o out.jsonl",
    "export ticket-42 --state --at 2 --json", "import - --store other.db --create",
    "import out.jsonl", "promote", "migrate agents.db other.db", "migrate --json other.db",
    "restore agents.db other.db --at 2026-08-12T14:03:22Z", "import-langgraph threads.sqlite",
    "import-langgraph threads.sqlite --thread t --type a:B --dry-run", "--version", "--help", "",
    "nonsense", "ls --store other.db", "run", "--json", "-s agents.db ls",
)  # fmt: skip
