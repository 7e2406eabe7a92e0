"""MQTT: a device with a will, a retained state and commands that it answers.

python examples/mqtt_device.py [URL]      default: a broker in this process
"""

import asyncio
import sys

import forebay

STATE, COMMANDS = "devices/lamp-7/state", "devices/lamp-7/set"


async def device(url: str) -> None:
    will = {"topic": STATE, "payload": b"offline", "qos": 1, "retain": True}
    async with forebay.connect(url, client_id="lamp-7", will=will) as client:
        async with client.consumer(COMMANDS, qos=1) as commands:
            await client.publish(STATE, b"online", qos=1, retain=True)
            command = await commands.receive()
            await commands.ack(command)
            await client.publish(STATE, command.data, qos=1, retain=True)
        await client.publish(STATE, b"offline", qos=1, retain=True)  # the will is for the other endings


async def main(url: str) -> None:
    async with forebay.connect(url, client_id="wall-switch") as client:
        async with client.subscribe(STATE, qos=1) as states:
            lamp = asyncio.create_task(device(url))
            for _ in range(3):
                state = (await states.receive(timeout=10)).data
                print("lamp-7 is", state.decode())
                if state == b"online":
                    await client.publish(COMMANDS, b"on", qos=1)
            await lamp


with forebay.Broker(mqtt_port=0) as broker:
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else str(broker.mqtt_url)))
