"""How commands that measure print what they measured, and what failed."""

from typing import TYPE_CHECKING, Any

from costmodel.cli.output import note

if TYPE_CHECKING:
    from costmodel.jobs.bench_report import BenchReport

__all__ = ["bench_document", "bench_line", "note_failures"]


def note_failures(report: "BenchReport") -> None:
    """Prints on standard error which sequences and models were not measured, and why."""
    for what, reason in report.failed.items():
        note(f"{what} was not measured: {reason}")


def bench_line(report: "BenchReport") -> str:
    """Returns the report of a run of the benchmark as one line of text, such as "12 measured in 30 s, ..."."""
    return (
        f"{report.measured} measured in {report.seconds:.0f} s, {report.reused} known before, "
        f"{report.unstable} unstable, {len(report.failed)} failed, {report.left} left"
        + (f", {report.dropped} samples dropped" if report.dropped else "")
        + (f", {report.repeated} measured twice" if report.repeated else "")
        + (f", {report.waiting_seconds:.0f} s lost while the machine was busy" if report.waiting_seconds >= 1 else "")
    )


def bench_document(report: "BenchReport") -> dict[str, Any]:
    """Returns the report of a run of the benchmark as a mapping, for the JSON document that `--json` prints."""
    return {
        "measured": report.measured,
        "reused": report.reused,
        "unstable": report.unstable,
        "failed": report.failed,
        "left": report.left,
        "dropped": report.dropped,
        "repeated": report.repeated,
        "seconds": round(report.seconds, 3),
        "waiting_seconds": round(report.waiting_seconds, 3),
        **({} if report.choice is None else {"expected_error": report.choice.error}),
    }
