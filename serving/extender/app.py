"""The scheduler extender as an ASGI application."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.responses import JSONResponse, Response

from costmodel.client import Client, ServiceError
from costmodel.errors import KubernetesError
from costmodel.serving.extender.decisions import Node, removed_nodes, scores_of
from costmodel.serving.extender.objective import SYSTEM_LABEL, PodObjective, objective_of
from costmodel.serving.extender.predictions import Predicted, ServicePredictions
from costmodel.serving.extender.settings import ExtenderSettings
from costmodel.serving.extender.wire import ExtenderArgs, ExtenderFilterResult, HostPriority

__all__ = ["create_extender"]

_LOG = logging.getLogger("costmodel.extender")

Systems = Callable[[], Mapping[str, str]]


def create_extender(settings: ExtenderSettings, client: Client, systems: Systems | None = None) -> FastAPI:
    """Returns the scheduler extender as an ASGI application, which offers the verbs `filter` and `prioritize`.

    Args:
        settings: Settings of the extender.
        client: Client of the costmodel service; the application closes it when it ends.
        systems: Returns the name of the system of each node, by name of the node, for schedulers that send only the
            names of nodes; it raises a `KubernetesError` if it cannot. None if there are no such schedulers: nodes that
            are given by name then have no known system.
    """
    predictions = ServicePredictions(
        client, usd_per_hour=settings.usd_per_hour, cache_s=settings.cache_s, pause_s=settings.pause_s
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        client.close()

    app = FastAPI(title="costmodel scheduler extender", lifespan=lifespan, docs_url=None, redoc_url=None)

    def predicted(args: ExtenderArgs, objective: PodObjective) -> tuple[Sequence[Node], Mapping[str, Predicted]]:
        """Returns the nodes of a request, and the prediction for each system that they are."""
        nodes = _nodes(args, systems)
        return nodes, predictions.predict(objective, {node.system for node in nodes if node.system is not None})

    # The verbs wait for the service: FastAPI runs functions that are not `async` in threads.

    @app.post("/filter")
    def filter_nodes(args: ExtenderArgs) -> ExtenderFilterResult:
        """Remove the nodes on which the pod would exceed its latency objective."""
        try:
            objective = objective_of(args.pod.annotations)
        except ValueError as error:  # no node can help, and the reason becomes an event of the pod
            return _without(args, dict.fromkeys(args.names, str(error)))
        if objective is None:
            return _without(args, {})
        try:
            nodes, known = predicted(args, objective)
        except (ServiceError, KubernetesError) as error:
            _warn(args, error)
            return _without(args, {}) if settings.on_error == "ignore" else ExtenderFilterResult(Error=str(error))
        removed = removed_nodes(nodes, known, objective, settings.unknown)
        fields: dict[str, str | int | None] = {"pod": args.pod.label, "nodes": len(nodes), "removed": len(removed)}
        fields["reason"] = next(iter(removed.values()), None)
        fields["unpredicted"] = next((one.reason for one in known.values() if one.reason), None)
        _LOG.info("filtered", extra={"fields": fields})
        return _without(args, removed)

    @app.post("/prioritize", response_model=list[HostPriority])
    def prioritize(args: ExtenderArgs) -> Sequence[HostPriority] | Response:
        """Score the nodes by the predicted latency or cost of the pod's model."""
        try:
            objective = objective_of(args.pod.annotations)
        except ValueError:  # `filter` gives the reason
            objective = None
        if objective is None:
            return _scored(args, {})
        try:
            return _scored(args, scores_of(*predicted(args, objective), settings.score))
        except (ServiceError, KubernetesError) as error:
            _warn(args, error)
            if settings.on_error == "ignore":
                return _scored(args, {})
            return JSONResponse({"Error": str(error)}, status_code=503)  # the contract has no field for it

    @app.get("/healthz")
    def healthz() -> Mapping[str, str]:
        """Answer that the process is alive, whether the service responds or not: a restart would not help."""
        return {"status": "ok"}

    return app


def _nodes(args: ExtenderArgs, systems: Systems | None) -> Sequence[Node]:
    """Returns the nodes of a request with their systems.

    Raises:
        KubernetesError: The request has only the names of nodes, and the API server does not list their labels.
    """
    if args.nodes is not None:
        known: Mapping[str, str] = args.nodes.labels(SYSTEM_LABEL)
    else:
        known = systems() if systems is not None else {}
    return [Node(name, known.get(name)) for name in args.names]


def _warn(args: ExtenderArgs, error: Exception) -> None:
    _LOG.warning("no predictions", extra={"fields": {"pod": args.pod.label, "error": str(error)}})


def _without(args: ExtenderArgs, removed: Mapping[str, str]) -> ExtenderFilterResult:
    """Returns the answer to a filter request, given the reason for each node that is removed."""
    names = args.names
    reasons = dict(removed)
    if args.nodes is None:
        kept = [name for name in names if name not in removed]
        return ExtenderFilterResult(NodeNames=kept, FailedNodes=reasons, FailedAndUnresolvableNodes=reasons)
    items = [item for name, item in zip(names, args.nodes.items, strict=True) if name not in removed]
    nodes = args.nodes.model_copy(update={"items": items})
    return ExtenderFilterResult(Nodes=nodes, FailedNodes=reasons, FailedAndUnresolvableNodes=reasons)


def _scored(args: ExtenderArgs, scores: Mapping[str, int]) -> list[HostPriority]:
    """Returns the answer to a prioritise request; nodes without a score get 0."""
    return [HostPriority(Host=name, Score=scores.get(name, 0)) for name in args.names]
