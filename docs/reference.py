"""Writes the reference pages from the code: `python docs/reference.py`, which `make docs` runs.

The command line page is written by typer, the HTTP page has the OpenAPI document as tables. A test fails where a page
is not current.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from costmodel.cli import app
from costmodel.serving.http.app import create_app

FOLDER = Path(__file__).parent / "reference"
WRITTEN = "<!-- Written by docs/reference.py: change the code instead. -->\n\n"


def command_line() -> str:
    """The page of the command line."""
    os.environ["COLUMNS"] = "100"
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="costmodel", title="Command line")
    for name, found in _all_commands(command):  # typer cuts what they do to 45 characters
        text = re.sub(
            rf"^\* `{name}`: .*\.\.\.$", f"* `{name}`: {found.get_short_help_str(200)}", text, flags=re.MULTILINE
        )
    return WRITTEN + "\n".join(line.rstrip() for line in text.splitlines()).strip() + "\n"


def _all_commands(command: Any) -> Iterator[tuple[str, Any]]:
    for name, found in getattr(command, "commands", {}).items():
        yield name, found
        yield from _all_commands(found)


def http() -> str:
    """The page of the HTTP interface."""
    document: dict[str, Any] = create_app().openapi()
    lines = ["# HTTP interface", "", document["info"]["description"], ""]
    lines += ["| request | what it does |", "|---|---|"]
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method != "head"  # as GET, without the body
    ]
    for name, operation in operations:
        lines.append(f"| [`{name}`](#{_anchor(name)}) | {_first_sentence(operation)} |")
    for name, operation in operations:
        lines += ["", f"## {name}", "", operation.get("description", operation.get("summary", "")), ""]
        lines += _parameters(operation)
        lines += _bodies(operation)
        lines += ["| status | meaning | answer |", "|---|---|---|"]
        for status, response in sorted(operation["responses"].items()):
            lines.append(f"| {status} | {response.get('description', '')} | {_content(response)} |")
    lines += ["", "# Documents", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += [f"## {name}", "", " ".join(schema.get("description", "").split()), ""]
        if schema.get("properties"):
            lines += ["| member | type | required | description |", "|---|---|---|---|"]
            required = schema.get("required", [])
            for member, inside in schema["properties"].items():
                always = "yes" if member in required else ""
                lines.append(f"| `{member}` | {_type(inside)} | {always} | {_cell(inside.get('description', ''))} |")
            lines.append("")
    return WRITTEN + "\n".join(lines).strip() + "\n"


def _anchor(heading: str) -> str:
    kept = "".join(character for character in heading.lower() if character.isalnum() or character in " -_")
    return kept.replace(" ", "-")


def _first_sentence(operation: dict[str, Any]) -> str:
    text = " ".join(operation.get("description", operation.get("summary", "")).split())
    return _cell(text.partition(". ")[0].rstrip("."))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _parameters(operation: dict[str, Any]) -> Iterator[str]:
    if operation.get("parameters"):
        yield "| parameter | in | type | description |"
        yield "|---|---|---|---|"
        for one in operation["parameters"]:
            yield f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {_cell(one.get('description', ''))} |"
        yield ""


def _bodies(operation: dict[str, Any]) -> Iterator[str]:
    if "requestBody" in operation:
        yield f"Body: {_content(operation['requestBody'])}"
        yield ""


def _content(message: dict[str, Any]) -> str:
    found = [f"`{kind}` {_type(inside.get('schema', {}))}" for kind, inside in message.get("content", {}).items()]
    return _cell(" or ".join(found))


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(one) for one in schema[several])
    if "prefixItems" in schema:
        return "list of " + " or ".join(dict.fromkeys(map(_type, schema["prefixItems"])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    return _cell(str(schema.get("type", "any")))


PAGES = {"cli.md": command_line, "http.md": http}


def main() -> int:
    """Writes every page; with --check only says which ones are not current."""
    FOLDER.mkdir(exist_ok=True)
    outdated = [name for name, page in PAGES.items() if _read(FOLDER / name) != page()]
    if "--check" in sys.argv[1:]:
        sys.stdout.writelines(f"docs/reference/{name} is not current: run `make docs`\n" for name in outdated)
        return 1 if outdated else 0
    for name in outdated:
        (FOLDER / name).write_text(PAGES[name](), encoding="utf-8")
    return 0


def _read(page: Path) -> str:
    return page.read_text(encoding="utf-8") if page.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
