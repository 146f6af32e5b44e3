"""The latency model: in-flight batching simulated step by step, each step's time from operations and bytes.

`work` counts what a step of a model costs, `cost` turns it into seconds with the constants of the catalogue
(``data/latency.yaml``), `replica` schedules as TensorRT-LLM does, `fleet` runs replicas behind
least-connections, `outcome` sums up. `records` and `fit` hold it against published figures; `calibrate` takes
the constants from a measured run.
"""
