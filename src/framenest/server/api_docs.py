"""The OpenAPI document as an HTML page: no scripts, nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

_HEAD = """<!doctype html><html lang=en><meta charset=utf-8>
<meta name=viewport content='width=device-width, initial-scale=1'>
<link rel=icon href=/assets/icon.svg type='image/svg+xml'><link rel=stylesheet href=/assets/docs.css>
<title>{title} API</title><main><h1>{title} API <small>{version}</small></h1>
<p>The same for machines: <a href=/openapi.json>/openapi.json</a>.</p>
<p>Where the server has a token, send <code>Authorization: Bearer TOKEN</code>.</p>"""


def docs_page(schema: dict[str, Any]) -> str:
    """HTML of an OpenAPI document."""
    parts = [_HEAD.format(**schema["info"]), _text(schema["info"])]
    for path, methods in schema["paths"].items():
        parts += [_operation(path, method, operation) for method, operation in methods.items()]
    parts.append("<h2>Models</h2>")
    for name, model in schema["components"]["schemas"].items():
        required = model.get("required", ())
        rows = [
            _row(field, "" if field in required else "optional", what, what)
            for field, what in model.get("properties", {}).items()
        ]
        parts.append(f"<section id='{name}'><h3>{name}</h3>{_text(model)}{_table(rows)}</section>")
    return "\n".join(parts) + "</main></html>"


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<section><h2><span class='method {method}'>{method.upper()}</span> <code>{escape(path)}</code></h2>"
    ]
    parts.append(_text(operation))
    for kind, what in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body: {kind} {_type(what['schema'])}</p>")
    parts.append(_table([_row(p["name"], p["in"], p["schema"], p) for p in operation.get("parameters", ())]))
    parts.append("<details><summary>Answers</summary><ul>")
    for code, answer in operation["responses"].items():
        types = [_type(what.get("schema", {})) for what in answer.get("content", {}).values()]
        parts.append(f"<li><code>{code}</code> {escape(answer['description'])} {' '.join(types)}")
    return "".join(parts) + "</ul></details></section>"


def _row(name: str, kind: str, schema: dict[str, Any], about: dict[str, Any]) -> str:
    text = escape(about.get("description", ""))
    return f"<tr><td><code>{escape(name)}</code> <small>{kind}</small><td>{_type(schema)}<td>{text}"


def _table(rows: list[str]) -> str:
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _type(schema: dict[str, Any]) -> str:
    """A short name of a schema, with links to models."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    limits = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return escape(" ".join([str(schema.get("const", schema.get("type", "any"))), *limits]))


def _text(about: dict[str, Any]) -> str:
    """The description in paragraphs, with code between backticks."""
    pieces = escape(about.get("description", "")).split("`")
    marked = "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))
    return "".join(f"<p>{paragraph}</p>" for paragraph in marked.split("\n\n") if paragraph)
