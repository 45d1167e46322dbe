"""A support agent on a page: it looks up a bill, drafts an answer, asks a person, and refunds.

    python examples/support.py                          # goes on until it asks, and waits
    perdure --store support.db answer ticket-42 yes     # in another terminal

Kill it wherever you like, and start it again: it goes on where it was, does not ask twice, and does
not refund twice. The bank is a folder, and the language model a template, so it runs anywhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import perdure

BANK = Path("bank")


@dataclass
class Invoice:
    id: str
    cents: int


@dataclass
class Ticket:
    customer: str
    invoice: Invoice | None = None
    messages: list[str] = field(default_factory=list)
    status: str = "open"


@perdure.step(retry=perdure.Retry(attempts=5, first=0.5, on=ConnectionError), timeout=30)
def look_up_billing(customer: str) -> Invoice:
    return Invoice(f"invoice-of-{customer}", 4200)


def chat(messages: list[str], invoice: Invoice) -> str:
    """Stands for a language model; any callable can be recorded, decorated or not."""
    return f"About {messages[-1]!r}: we found {invoice.id}, and can refund {invoice.cents} cents."


def find_refund(invoice: str, cents: int) -> object:
    """Asks the bank whether the refund in doubt was made."""
    receipt = BANK / perdure.idempotency_key()
    return json.loads(receipt.read_text())["receipt"] if receipt.exists() else perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=find_refund)
def refund(invoice: str, cents: int) -> str:
    BANK.mkdir(0o700, exist_ok=True)
    receipt = f"receipt for {invoice}"
    made = {"invoice": invoice, "cents": cents, "receipt": receipt}
    (BANK / perdure.idempotency_key()).write_text(json.dumps(made))
    return receipt


@perdure.agent(Ticket)
def support(run: perdure.Run[Ticket]) -> str:
    invoice = look_up_billing(run.state.customer)
    with run.edit("billing known") as draft:
        draft.invoice = invoice
    reply = run.call(chat, run.state.messages, invoice)
    with run.edit("answer drafted") as draft:
        draft.messages.append(reply)

    ask = f"Refund {invoice.cents} cents of {invoice.id}?"
    if not run.ask(ask, timeout=timedelta(days=1), default=False):
        with run.edit("not refunded") as draft:
            draft.status = "declined"
        return "nothing was refunded"

    receipt = refund(invoice.id, invoice.cents)
    with run.edit("refunded") as draft:
        draft.status = "refunded"
        draft.messages.append(receipt)
    return receipt


def main() -> None:
    with perdure.open("support.db") as store:
        agent = store.agent("ticket-42", Ticket, initial=Ticket("c-7"))
        with agent.edit("the customer wrote", key="message-1") as draft:
            draft.messages.append("Where is my money?")
        print(store.run(support, "ticket-42"))  # starts it, or goes on with it


if __name__ == "__main__":
    main()
