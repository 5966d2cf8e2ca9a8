"""Settings of the service, from the environment: COSTMODEL_SERVE_ and the name of the field."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = ["Settings"]

_MIB = 1 << 20


class Settings(BaseSettings):
    """What an operator may choose; the defaults suit one machine of a few cores."""

    model_config = SettingsConfigDict(env_prefix="COSTMODEL_SERVE_", frozen=True, extra="forbid")

    # Where things are
    store: str | None = Field(
        default=None, description="URL of the results store; by default SQLite in the data folder."
    )
    scratch: Path | None = Field(
        default=None, description="Folder that uploads are written to; by default the folder of temporary files."
    )
    root_path: str = Field(
        default="", pattern=r"^(/[A-Za-z0-9._~-]+)*$", description="Path under which a proxy offers the service."
    )

    # Who is answered
    tokens: Path | None = Field(
        default=None, description="File of hashed bearer tokens; without one only this host is answered."
    )
    insecure: bool = Field(
        default=False, description="Answer every address without tokens: something in front checks who asks."
    )
    hosts: tuple[str, ...] = Field(
        default=(), description="Names in Host headers that are answered, as a JSON list; by default all with tokens, "
        "and localhost without."
    )  # fmt: skip

    # Processes
    engines: int = Field(default=2, ge=1, description="Processes of each worker that answer what is not remembered.")
    engine_memory_mib: int = Field(
        default=1024, ge=512, description="Memory of each engine beyond what it starts with."
    )
    reader_memory_mib: int = Field(default=2048, ge=256, description="The same for the process that reads models.")
    reader_seconds: float = Field(default=30.0, gt=0, description="Processor and clock time for reading one model.")
    reader_tasks: int = Field(
        default=500, ge=1, description="Models after which the process that reads them is replaced."
    )
    request_seconds: float = Field(default=30.0, gt=0, description="Time that a request about many models may take.")
    store_seconds: float = Field(default=1.0, gt=0, description="Time that the database may keep a question waiting.")
    refresh_seconds: float = Field(default=2.0, gt=0, description="Time between looks for what is new in the store.")

    # How much is accepted
    max_body_mib: int = Field(default=256, ge=1, description="Size of a model's file.")
    max_json_mib: int = Field(default=16, ge=1, description="Size of a request in JSON, which is held in memory.")
    max_items: int = Field(default=10_000, ge=1, description="Models in one bulk request.")
    max_listed_layers: int = Field(default=3_000, ge=1, description="Layers that a bulk request may list.")
    max_references: int = Field(default=500_000, ge=1, description="References to layers in one bulk request.")
    max_layers: int = Field(default=10_000, ge=1, description="Layers of a model.")
    max_observations: int = Field(default=100_000, ge=1, description="Observations that are kept for one token.")
    observation_days: float = Field(default=90.0, gt=0, description="Days after which observations are deleted.")
    scratch_mib: int = Field(default=2048, ge=1, description="Uploads of each worker that are on their way, together.")
    json_mib: int = Field(default=64, ge=1, description="Requests in JSON of each worker that are held, together.")

    # How fast, for each worker
    queue: int = Field(default=64, ge=0, description="Requests that wait for an engine; more are turned away.")
    queue_seconds: float = Field(default=5.0, gt=0, description="Time that a request waits for an engine at most.")
    upload_seconds: float = Field(default=120.0, gt=0, description="Time that a body may take to arrive.")
    send_seconds: float = Field(default=30.0, gt=0, description="Time that a client may take to read an answer.")
    requests_per_second: float = Field(default=300.0, gt=0, description="Requests of one token; faster ones wait.")
    mib_per_second: float = Field(
        default=64.0, gt=0, description="Megabytes that one token may send and be sent; faster ones wait."
    )
    requests_in_flight: int = Field(default=256, ge=1, description="Requests of one token at the same time.")
    connections: int = Field(default=1024, ge=1, description="Connections at the same time.")
    connections_per_address: int = Field(
        default=256, ge=1, description="Connections of one address; set it to `connections` behind a proxy."
    )
    header_seconds: float = Field(default=10.0, gt=0, description="Time for a head, and up to half as much again.")

    # What is kept
    uploads_mib: int = Field(default=1024, ge=1, description="Models that clients sent and need not send again.")
    answers_mib: int = Field(default=64, ge=0, description="Answers that are remembered, in each worker.")

    # What operators see
    traces: bool = Field(default=False, description="Send OpenTelemetry traces; needs the extra `otel`.")

    @property
    def max_body_bytes(self) -> int:
        """Size of a model's file."""
        return self.max_body_mib * _MIB

    @property
    def max_json_bytes(self) -> int:
        """Size of a request in JSON."""
        return self.max_json_mib * _MIB
