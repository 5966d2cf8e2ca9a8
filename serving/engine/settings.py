"""What an engine is started with."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["EngineSettings"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Limits and places of one engine; JSON-able, because it crosses to another process.

    Attributes:
        store_url: URL of the results store.
        bundles: Folder of trained regressors.
        uploads: Folder of the models that clients sent.
        scratch: Folder of files on their way; None for that of temporary files.
        uploads_bytes: The most that those may take on the disk.
        store_wait_s: Seconds that the database may keep a question waiting.
        refresh_s: Seconds between looks for new champions and measurements.
        request_s: Seconds that a request about many models may take.
        max_items: Models in a bulk request.
        max_layers: Layers of a model.
        max_listed_layers: Layers that a bulk request may list.
        max_references: References from models to layers in a bulk request.
        max_observations: Observations that are kept for one owner.
        memory_bytes: Address space beyond what an engine has when it starts.
        reader_memory_bytes: The same for the process that reads models.
        reader_s: Seconds for reading one model.
        reader_tasks: Models after which the process that reads them is replaced.
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
