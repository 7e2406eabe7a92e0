"""TubeMQ: the members of a consumer group share the partitions of a topic.

python examples/tubemq_group.py [URL]      default: a master and broker in this process
"""

import sys
from collections import Counter

import forebay
from forebay import blocking

SALES = 300


def main(url: str) -> None:
    with blocking.connect(url) as client:
        with client.producer("sales") as producer:
            producer.send_many(
                [b"%d" % n for n in range(SALES)], keys=[f"till-{n % 7}" for n in range(SALES)]
            )

        # Each member takes its share of the partitions: two members, numbered from 0.
        members = [
            client.consumer("sales", "billing", position="first", source_count=2, node_id=number)
            for number in range(2)
        ]
        received: Counter[int] = Counter()
        while received.total() < SALES:
            for number, member in enumerate(members):
                messages = member.receive_many(100, timeout=0.2)
                member.ack_many(messages)
                received[number] += len(messages)
        for number, member in enumerate(members):
            held = [state["partition"] for state in member.partitions()]
            print(f"member {number}: partitions {held}, {received[number]} messages")
            member.close()


with forebay.Broker(tubemq_port=0) as broker:
    main(sys.argv[1] if len(sys.argv) > 1 else str(broker.tubemq_url))
