"""Settings of the service; each is read from the environment variable COSTMODEL_SERVE_ followed by its name."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = ["Settings"]

_MIB = 1 << 20


class Settings(BaseSettings):
    """Settings of the service; the defaults suit one machine with a few cores."""

    model_config = SettingsConfigDict(env_prefix="COSTMODEL_SERVE_", frozen=True, extra="forbid")

    # Locations
    store: str | None = Field(
        default=None, description="URL of the results store; by default an SQLite file in the data folder."
    )
    scratch: Path | None = Field(
        default=None,
        description="Folder for uploads in transit and of engines; by default the folder of temporary files.",
    )
    root_path: str = Field(
        default="", pattern=r"^(/[A-Za-z0-9._~-]+)*$", description="Path under which a proxy offers the service."
    )

    # Access
    tokens: Path | None = Field(
        default=None, description="File of hashed bearer tokens; without it only clients on this host are answered."
    )
    insecure: bool = Field(
        default=False,
        description="Answer clients of every address without tokens: for a service behind a proxy that checks access.",
    )
    hosts: tuple[str, ...] = Field(
        default=(), description="Accepted names in Host headers, as a JSON list; by default all names with tokens, and "
        "localhost without."
    )  # fmt: skip

    # Processes
    engines: int = Field(
        default=2,
        ge=1,
        description="Number of engine processes of each worker, which compute answers that are not cached.",
    )
    engine_memory_mib: int = Field(
        default=1024, ge=512, description="Memory in MiB that each engine may use beyond what it has when it starts."
    )
    reader_memory_mib: int = Field(
        default=2048, ge=256, description="Memory in MiB that a reader may use beyond its start."
    )
    reader_seconds: float = Field(default=30.0, gt=0, description="Maximum processor and clock time for one model.")
    reader_tasks: int = Field(
        default=500, ge=1, description="Number of models after which a reader process is replaced."
    )
    request_seconds: float = Field(default=30.0, gt=0, description="Maximum time for a request about many models.")
    store_seconds: float = Field(default=1.0, gt=0, description="Maximum time that a query waits for the database.")
    refresh_seconds: float = Field(default=2.0, gt=0, description="Time between checks for changes in the store.")

    # Sizes
    max_body_mib: int = Field(default=256, ge=1, description="Maximum size of a model file.")
    max_json_mib: int = Field(default=16, ge=1, description="Maximum size of a JSON request, which is held in memory.")
    max_items: int = Field(default=10_000, ge=1, description="Maximum number of models in one bulk request.")
    max_listed_layers: int = Field(
        default=3_000, ge=1, description="Maximum number of layers that a bulk request may list."
    )
    max_references: int = Field(
        default=500_000, ge=1, description="Maximum number of references to layers in one bulk request."
    )
    max_layers: int = Field(default=10_000, ge=1, description="Maximum number of layers of a model.")
    max_observations: int = Field(
        default=100_000, ge=1, description="Maximum number of observations stored for one token."
    )
    observation_days: float = Field(
        default=90.0, gt=0, description="Number of days after which observations are deleted."
    )
    scratch_mib: int = Field(default=2048, ge=1, description="Maximum size of all uploads in transit of each worker.")
    json_mib: int = Field(default=64, ge=1, description="Maximum size of all JSON requests that each worker holds.")

    # Rates and times, for each worker
    queue: int = Field(
        default=64, ge=0, description="Maximum number of requests that wait for an engine; others are refused."
    )
    queue_seconds: float = Field(default=5.0, gt=0, description="Maximum time that a request waits for an engine.")
    upload_seconds: float = Field(default=120.0, gt=0, description="Maximum time for a request body to arrive.")
    send_seconds: float = Field(default=30.0, gt=0, description="Maximum time for a client to read an answer.")
    requests_per_second: float = Field(
        default=300.0, gt=0, description="Request rate of one token; requests beyond it wait."
    )
    mib_per_second: float = Field(
        default=64.0,
        gt=0,
        description="Data rate of one token, for uploads and for answers each, in MiB per second; more has to wait.",
    )
    requests_in_flight: int = Field(
        default=256, ge=1, description="Maximum number of concurrent requests of one token."
    )
    connections: int = Field(default=1024, ge=1, description="Maximum number of open connections.")
    connections_per_address: int = Field(
        default=256,
        ge=1,
        description="Maximum number of open connections of one address; behind a proxy, set it to `connections`.",
    )
    header_seconds: float = Field(
        default=10.0,
        gt=0,
        description="Maximum time for a request head to arrive; a connection is closed after 1 to 1.5 times that.",
    )

    # Storage and caches
    uploads_mib: int = Field(default=1024, ge=1, description="Maximum size of all uploaded models that are stored.")
    answers_mib: int = Field(default=64, ge=0, description="Size of the answer cache of each worker.")

    # Telemetry
    traces: bool = Field(default=False, description="Send OpenTelemetry traces; needs the extra `otel`.")

    @property
    def max_body_bytes(self) -> int:
        """Maximum size of a model file in bytes."""
        return self.max_body_mib * _MIB

    @property
    def max_json_bytes(self) -> int:
        """Maximum size of a JSON request in bytes."""
        return self.max_json_mib * _MIB
