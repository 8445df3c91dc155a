"""The OpenAPI document as a page to read: no scripts, nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any


def docs_page(schema: dict[str, Any]) -> str:
    """HTML of an OpenAPI document."""
    info = schema["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        "<link rel=icon href=/assets/icon.svg type='image/svg+xml'>",
        f"<title>{escape(info['title'])} API</title><link rel=stylesheet href=/assets/docs.css>",
        f"<main><h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>",
        _text(info.get("description", "")),
        "<p>The same for machines: <a href=/openapi.json>/openapi.json</a>.</p>",
        "<p>Where the server has a token, send <code>Authorization: Bearer TOKEN</code>.</p>",
    ]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(path, method, operation))
    parts.append("<h2>Shapes</h2>")
    for name, shape in schema["components"]["schemas"].items():
        parts.append(
            f"<section id='{escape(name)}'><h3>{escape(name)}</h3>{_text(shape.get('description', ''))}"
        )
        parts.append(_fields(shape) + "</section>")
    return "\n".join(parts) + "</main></html>"


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code><td>{p['in']}<td>{_type(p['schema'])}"
        f"<td>{escape(p.get('description', ''))}"
        for p in operation.get("parameters", ())
    )
    body = operation.get("requestBody", {}).get("content", {})
    takes = "".join(f"<p>Body: {escape(kind)} {_type(what['schema'])}</p>" for kind, what in body.items())
    answers = "".join(
        f"<li><code>{code}</code> {escape(answer.get('description', ''))} "
        + " ".join(_type(what.get("schema", {})) for what in answer.get("content", {}).values())
        for code, answer in operation["responses"].items()
    )
    return (
        f"<section><h2><span class='method {method}'>{method.upper()}</span> <code>{escape(path)}</code></h2>"
        + _text(operation.get("description", ""))
        + takes
        + (f"<table>{rows}</table>" if rows else "")
        + f"<details><summary>Answers</summary><ul>{answers}</ul></details></section>"
    )


def _fields(shape: dict[str, Any]) -> str:
    required = shape.get("required", ())
    return (
        "<table>"
        + "".join(
            f"<tr><td><code>{escape(name)}</code>{'' if name in required else ' <small>optional</small>'}"
            f"<td>{_type(field)}<td>{escape(field.get('description', ''))}"
            for name, field in shape.get("properties", {}).items()
        )
        + "</table>"
    )


def _type(schema: dict[str, Any]) -> str:
    """A short name of a schema, with links to named shapes."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    limits = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return escape(" ".join([str(schema.get("const", schema.get("type", "any"))), *limits]))


def _text(text: str) -> str:
    """Paragraphs, with code between backticks."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        pieces = escape(paragraph).split("`")
        marked = "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))
        paragraphs.append(f"<p>{marked}</p>")
    return "".join(paragraphs) if text else ""
