"""Whether a log and the views beside it agree, and mending the views."""
