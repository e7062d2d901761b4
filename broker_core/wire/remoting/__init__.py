"""RocketMQ's remoting protocol: stated once, for clients, brokers and name servers.

    frame           bytes on the wire, both directions
    command         commands, and the numbers of requests and answers
    headers         fields of the requests about topics, offsets and single messages
    route           questions to name servers, and the JSON of routes
    pull_message    PULL_MESSAGE and its answer
    send_message    SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, their bodies and their answer
    lenient_json    JSON as RocketMQ's servers write it
    status          answers that are no success, as errors
    acl             signatures of requests

Nothing here imports a client or a server.
"""
