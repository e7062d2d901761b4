"""Planning: values in, values out. No Spark, no broker, no clock, no I/O.

    which queues        subscription       subscribe, subscribePattern, assign
    where to begin      starting_offsets   startingOffsets, endingOffsets, timestamps, group
    where a batch ends  rate_limit         maxOffsetsPerTrigger, minOffsetsPerTrigger
    which ranges        dataloss           of a micro-batch; failOnDataLoss
                        bounded            of a batch read, with ends that may stay open
                        pushdown           Spark's filters in a batch read
    which tasks         split              minPartitions, maxRecordsPerPartition

`offsets` has the values that all of them share, and their JSON.
"""
