"""The agent as a Restate service: `FOLDER ORDER [--key]`; runs in Restate's environment.

This process is the service, and the caller, who posts the order to the server under an idempotency
key, as often as it is started, and so gets the one result. The server, which has the journal, is
another process, and lives on. With --key the company gets `ctx.uuid()`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request

import hypercorn.asyncio  # type: ignore[import-not-found]
import hypercorn.config  # type: ignore[import-not-found]
import restate  # type: ignore[import-not-found]

from bench.crash import card

SERVICE_PORT = "CRASH_SERVICE_PORT"
INGRESS = "CRASH_RESTATE_INGRESS"
ADMIN = "CRASH_RESTATE_ADMIN"
LOOK_S = 0.05

service = restate.Service("Shop")


def _price() -> int:
    return card.CENTS


async def _buy(ctx: restate.Context, asked: dict[str, str]) -> str:
    await ctx.run_typed("price", _price)
    key = str(ctx.uuid()) if asked["key"] else ""
    receipt = await ctx.run_typed("charge", card.charge, order=asked["order"], key=key)
    card.moment(card.NEXT)
    return f"thank you for {receipt}"


service.handler(name="buy")(_buy)


def post(url: str, body: object, **headers: str) -> object:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=card.TIMEOUT_S) as response:
        return json.loads(response.read())


def order_it(order: str, with_key: bool) -> str:
    """Tell the server where the service is, and post the order; waits for its result."""
    here = f"http://127.0.0.1:{os.environ[SERVICE_PORT]}"
    try:
        post(f"{os.environ[ADMIN]}/deployments", {"uri": here})
    except urllib.error.HTTPError as refused:
        if refused.code != 409:  # it knows this one from before the crash
            raise
    asked = {"order": order, "key": "yes" if with_key else ""}
    headers = {"idempotency-key": order}
    return str(post(f"{os.environ[INGRESS]}/Shop/buy", asked, **headers))


async def serve(order: str, with_key: bool) -> str:
    ended = asyncio.Event()
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{os.environ[SERVICE_PORT]}"]
    serving = asyncio.create_task(
        hypercorn.asyncio.serve(restate.app([service]), config, shutdown_trigger=ended.wait)
    )
    await listening(int(os.environ[SERVICE_PORT]))
    said = await asyncio.to_thread(order_it, order, with_key)
    card.report(card.FINISHED, said)
    ended.set()
    await serving
    return said


async def listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(LOOK_S)
        else:
            writer.close()
            return


def main(folder: str, order: str, *options: str) -> None:
    asyncio.run(serve(order, "--key" in options))


if __name__ == "__main__":
    main(*sys.argv[1:])
