"""Send to two groups at once, and read what one of them delivers.

antiphon up --groups orders=3,billing=3 --dir shop
python examples/shop.py shop
"""

from __future__ import annotations

import asyncio
import sys

import antiphon


async def main(cluster: str) -> None:
    async with antiphon.connect(cluster, name="counter") as client:
        receipt = await client.multicast({"orders", "billing"}, b"one espresso")
        print("accepted by", receipt.member)
        table = await client.multicast_many({"orders", "billing"}, [b"two teas", b"one cake", b"the bill"])
        print("accepted together:", table.count)
        async for message in client.subscribe("orders"):
            print(message.position, message.destinations, message.payload.decode())
            if message.client == client.name and message.payload == b"the bill":
                break


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/shop.py FOLDER, with the folder of a cluster that runs")
    try:
        asyncio.run(main(sys.argv[1]))
    except antiphon.AntiphonError as error:
        sys.exit(str(error))
