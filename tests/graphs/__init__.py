"""Programs of tasks that chance makes; see docs/reliability.md, "Programs of tasks"."""
