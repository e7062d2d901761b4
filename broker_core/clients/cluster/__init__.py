"""Apache RocketMQ clusters by their own remoting protocol: the `rocketmq://` broker.

    cluster            the cluster as one Broker; the way in
    topics offsets query      what it asks brokers besides pulling and sending
    pull/              puller → window → batch, records: ranges of a queue as frame batches
    send/              sender → plan → queue_selection → broker_share: messages, acknowledged
    client_instance    connections, name servers and routes that all of them share
    route/             name_servers, route_cache: which broker holds which queue
    net/               connection: one socket, many requests in flight
    settings namespace read_your_writes

The protocol itself is stated in broker_core.wire.remoting.
"""
