"""Settings with which a web server starts an engine."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["EngineSettings"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Locations and limits of one engine, which a web server passes as JSON to the engine's process.

    Attributes:
        store_url: URL of the results store.
        bundles: Folder of trained regressors.
        uploads: Folder of the models that clients uploaded.
        scratch: Folder for temporary files of reader processes; None for the default folder of temporary files.
        uploads_bytes: Maximum disk space of the uploaded models in bytes.
        store_wait_s: Maximum time in seconds that a query waits for the database.
        refresh_s: Seconds between checks for new champions and measurements.
        request_s: Maximum time in seconds for a request about many models.
        max_items: Maximum number of models in a bulk request.
        max_layers: Maximum number of layers of a model that is uploaded, or sent as a graph of layers.
        max_listed_layers: Maximum number of layers that a bulk request may list.
        max_references: Maximum number of references from the models of a bulk request to its listed layers, in total.
        max_observations: Maximum number of observations stored for one owner.
        memory_bytes: Address space in bytes that an engine may use beyond what it has after its start.
        reader_memory_bytes: Address space in bytes that a reader process may use beyond what it has after its start.
        reader_s: Maximum time in seconds for reading one model.
        reader_tasks: Number of models that a reader process reads before it is replaced.
    """

    store_url: str
    bundles: Path
    uploads: Path
    scratch: Path | None = None
    uploads_bytes: int = 1 << 30
    store_wait_s: float = 1.0
    refresh_s: float = 2.0
    request_s: float = 30.0
    max_items: int = 10_000
    max_layers: int = 10_000
    max_listed_layers: int = 3_000
    max_references: int = 500_000
    max_observations: int = 100_000
    memory_bytes: int = 1 << 30
    reader_memory_bytes: int = 2 << 30
    reader_s: float = 30.0
    reader_tasks: int = 500
