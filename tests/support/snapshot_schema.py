"""The JSON Schema of a file for `trimtab sim place`, made of the dataclasses that the reader goes by.

What is for people (titles, descriptions) and what holds between keys is taken from docs/snapshot.schema.json as it is;
`python -m tests.support.snapshot_schema` writes the rest of it anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from daemons.capacity.place import fields as place_fields
from shared.base.type_hints import field_hints, is_enum, is_record
from shared.config.records import Form, Items, OneOf, Range
from tests.support.paths import ROOT

PATH = ROOT / "docs/snapshot.schema.json"
NAMED = {place_fields.Name: "name", Annotated[str, place_fields.LABEL]: "label"}
"""Types that are stated once."""
PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}
KEPT = ("description", "anyOf", "oneOf")
Schema = dict[str, Any]


def schema(old: Schema) -> Schema:
    """The schema, with the words of an old one."""
    top = _object(place_fields.Cluster, old)
    sections = {
        cls.__name__: cls
        for cls in vars(place_fields).values()
        if isinstance(cls, type) and cls.__module__ == place_fields.__name__ and cls is not place_fields.Cluster
    }
    known = old["$defs"]
    named = {name: _named(hint) | _kept(known[name], "description") for hint, name in NAMED.items()}
    made = {_ref(name): _object(cls, known.get(_ref(name), {})) for name, cls in sections.items()}
    return {"$schema": old["$schema"], "title": old["title"], **top, "$defs": named | made}


def _ref(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _kept(old: Schema, *keys: str) -> Schema:
    return {key: old[key] for key in keys if key in old}


def _object(cls: type[Any], old: Schema) -> Schema:
    hints = field_hints(cls, annotated=True)
    words = old.get("properties", {})
    properties = {
        field.name: _kept(words.get(field.name, {}), "description") | _key(field, hints[field.name])
        for field in fields(cls)
    }
    required = [field.name for field in fields(cls) if not _has_default(field)]
    kept = _kept(old, *KEPT)
    about = {"description": kept.pop("description")} if "description" in kept else {}
    needed = {"required": required} if required else {}
    return about | {"type": "object", "additionalProperties": False, "properties": properties} | needed | kept


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _key(field: Field[Any], hint: Any) -> Schema:
    """What a key may hold: also null, where it may be left out."""
    found = _parts(hint)
    if _has_default(field):
        found = _or_null(found)
    if isinstance(field.default, bool | int | float | str):
        found["default"] = _number(field.default)
    return found


def _or_null(found: Schema) -> Schema:
    if "anyOf" in found:
        return found | {"anyOf": [*found["anyOf"], {"type": "null"}]}
    if "$ref" in found:
        return {"anyOf": [found, {"type": "null"}]}
    if "enum" in found:
        return found | {"enum": [*found["enum"], None]}
    return found | {"type": [found["type"], "null"]}


def _parts(hint: Any) -> Schema:
    if get_origin(hint) in (Union, UnionType):
        found = [_parts(part) for part in get_args(hint) if part is not NoneType]
        return found[0] if len(found) == 1 else {"anyOf": found}
    return {"$ref": f"#/$defs/{NAMED[hint]}"} if hint in NAMED else _named(hint)


def _named(hint: Any) -> Schema:
    bare, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(bare) is tuple:
        found: Schema = {"type": "array", "items": _parts(get_args(bare)[0])}
    elif get_origin(bare) is Mapping:
        found = {"type": "object", "additionalProperties": _parts(get_args(bare)[1])}
    elif is_record(bare):
        found = {"$ref": f"#/$defs/{_ref(bare.__name__)}"}
    elif is_enum(bare):
        found = {"enum": [member.value for member in bare]}
    else:
        found = {"type": PLAIN[bare]}
    for note in notes:
        found |= _limit(note)
    if "enum" in found:
        found.pop("type", None)
    return found


def _limit(note: Any) -> Schema:
    if isinstance(note, Range):
        return {"minimum": _number(note.least), "maximum": _number(note.most)}
    if isinstance(note, Form):
        return {"pattern": f"^{note.pattern}$"}
    if isinstance(note, OneOf):
        return {"enum": list(note.words)}
    assert isinstance(note, Items), note
    given = {"minItems": note.least or None, "maxItems": note.most, "uniqueItems": note.distinct or None}
    return {key: value for key, value in given.items() if value is not None}


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def text(old: str) -> str:
    """The file, made anew of its old text."""
    return json.dumps(schema(json.loads(old)), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(PATH.read_text("utf-8")), "utf-8")
