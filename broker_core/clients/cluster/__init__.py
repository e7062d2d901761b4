"""Apache RocketMQ clusters by their own remoting protocol: the `rocketmq://` broker.

frame       bytes on the wire, both directions      command      codes, flags, requests
connection  one socket, many requests in flight     route        which broker holds which queue
pull        ranges of a queue as frame batches      send         batches, acknowledged
admin       topics and offsets                      cluster      all of it as one Broker
"""
