"""Traffic: how many requests a second machines carry within a latency objective, found by simulating their queues.

In: service times by batch size, how run times vary on a system, and a batching policy. Out: latency percentiles,
throughput and utilisation in MLPerf's four scenarios, the highest rate, and the number of replicas for a rate. This
package does not know where service times come from: no models, no regressors, no store.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
