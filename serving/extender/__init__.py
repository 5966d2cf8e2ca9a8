"""A scheduler extender of Kubernetes: removes and scores nodes by the predicted latency of the model of a pod.

Its inputs are requests of kube-scheduler, its outputs are nodes with reasons or scores. It asks a costmodel service for
the predictions over HTTP, and loads no regressor and no runtime.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
