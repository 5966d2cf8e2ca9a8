"""Settings of the service, from the environment: COSTMODEL_SERVE_ and the name of the field."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = ["Settings"]

_MIB = 1 << 20


class Settings(BaseSettings):
    """What an operator may choose; the defaults suit one machine of a few cores."""

    model_config = SettingsConfigDict(env_prefix="COSTMODEL_SERVE_", frozen=True, extra="forbid")

    store: str | None = Field(
        default=None, description="URL of the results store; by default SQLite in the data folder."
    )
    tokens: Path | None = Field(default=None, description="File of hashed bearer tokens; without one nobody is asked.")
    insecure: bool = Field(
        default=False, description="Answer strangers without tokens: something in front checks them."
    )
    max_body_mib: int = Field(default=1024, ge=1, description="Of a request.")
    max_json_mib: int = Field(default=16, ge=1, description="Of a request in JSON, which is held in memory.")
    max_items: int = Field(default=10_000, ge=1, description="In one bulk request.")
    max_layers: int = Field(default=20_000, ge=1, description="Of a model, and of the list of a bulk request.")
    readers: int = Field(default=1, ge=1, description="Processes of each worker that read models.")
    reader_memory_mib: int = Field(default=2048, ge=256, description="Of each.")
    reader_seconds: float = Field(default=30.0, gt=0, description="For each model.")
    queue: int = Field(
        default=64, ge=0, description="Requests that wait for work, in each worker; more are turned away."
    )
    queue_seconds: float = Field(default=5.0, gt=0, description="That a request waits at most.")
    request_seconds: float = Field(default=60.0, gt=0, description="That one about many models may take.")
    upload_seconds: float = Field(default=120.0, gt=0, description="That a body may take to arrive.")
    refresh_seconds: float = Field(default=2.0, gt=0, description="Between looks for new champions and measurements.")
    seen_mib: int = Field(default=1024, ge=1, description="Of models that were seen and need not be sent again.")
    answers_mib: int = Field(default=64, ge=0, description="Of answers that are remembered, in each worker.")

    @property
    def max_body_bytes(self) -> int:
        """Of a request."""
        return self.max_body_mib * _MIB

    @property
    def max_json_bytes(self) -> int:
        """Of a request in JSON."""
        return self.max_json_mib * _MIB
