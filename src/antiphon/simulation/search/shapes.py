"""What a type says of the order in its values, as functions: made once for each type, and fast from then on.

What may be reordered when two states are compared is said by the types of the state variables, and by nothing else:
``Table`` and ``Heap`` (core/unordered.py), and sets, wherever they are inside of other types. All else has an order.
What no rule here knows is compared as it is encoded: that can tell equal states apart, but never takes two for one.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from enum import Enum
from operator import attrgetter, itemgetter
from typing import Annotated, Any, NamedTuple, NewType, Union, get_args, get_origin, get_type_hints

import msgspec

from antiphon.core.buffers import encode_inside
from antiphon.core.unordered import Unordered

Change = Callable[[Any], Any]


class Shape(NamedTuple):
    """Of the values of one type. Where there is no function, a value stays as it is."""

    canonical: Change | None = None  # the same encoding for all values that differ only in what has no order
    turned: Change | None = None  # the same value, with what has no order in another one
    sortable: bool = False  # whether two values always compare


AS_IT_IS = Shape()


def shape_of(hint: Any) -> Shape:
    found = _shapes.get(hint)
    if found is None:
        _shapes[hint] = _postponed(hint)  # for a type that has itself inside
        found = _shapes[hint] = _compile(hint)
    return found


def fields_of(kind: type) -> dict[str, Shape]:
    """The shapes of a struct's fields, by name and in their order."""
    hints = get_type_hints(kind, include_extras=True)
    names = getattr(kind, "__struct_fields__" if issubclass(kind, msgspec.Struct) else "_fields")
    return {name: shape_of(hints[name]) for name in names}


def getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """attrgetter, which gives a tuple only for two names and more."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


_shapes: dict[Any, Shape] = {}


def _postponed(hint: Any) -> Shape:
    def canonical(value: Any) -> Any:
        change = _shapes[hint].canonical
        return value if change is None else change(value)

    def turned(value: Any) -> Any:
        turn = _shapes[hint].turned
        return value if turn is None else turn(value)

    return Shape(canonical, turned)


def _unchanged(value: Any) -> Any:
    return value


def _compile(hint: Any) -> Shape:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marked = any(isinstance(mark, Unordered) for mark in hint.__metadata__)
        return _unordered(arguments[0]) if marked else shape_of(arguments[0])
    if isinstance(hint, NewType):
        return shape_of(hint.__supertype__)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    kind = origin or hint
    if not isinstance(kind, type):
        return AS_IT_IS
    if issubclass(kind, (set, frozenset)):
        return _set(shape_of(arguments[0]) if arguments else AS_IT_IS)
    if issubclass(kind, dict):
        return _dict(*map(shape_of, arguments)) if arguments else AS_IT_IS
    if issubclass(kind, list):
        return _row(shape_of(arguments[0]), list) if arguments else AS_IT_IS
    if issubclass(kind, msgspec.Struct):
        return _struct(kind)
    if issubclass(kind, tuple):
        return _tuple(kind, arguments)
    return Shape(sortable=_compares(kind))


def _compares(kind: type) -> bool:
    if issubclass(kind, Enum):
        return issubclass(kind, (int, str))
    return kind in (int, str, bytes, bool)


# Without order ------------------------------------------------------------------------------------------------------


def _unordered(hint: Any) -> Shape:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is dict:
        return _table(*map(shape_of, arguments))
    if origin is list:
        return _heap(shape_of(arguments[0]))
    raise TypeError(f"{hint} is marked as unordered: that is for dicts and lists, as Table and Heap")


def _table(key: Shape, value: Shape) -> Shape:
    first: Change = itemgetter(0)
    by_key: Change = first if key.sortable else lambda pair: encode_inside(pair[0])
    in_key, in_value, turn = key.canonical, value.canonical, value.turned

    def canonical(table: dict[Any, Any]) -> list[tuple[Any, Any]]:
        pairs = [*table.items()]
        if in_value is not None:
            pairs = [(k, in_value(v)) for k, v in pairs]
        if in_key is not None:
            pairs = [(in_key(k), v) for k, v in pairs]
        if len(pairs) > 1:
            pairs.sort(key=by_key)
        return pairs

    def turned(table: dict[Any, Any]) -> dict[Any, Any]:
        return {k: v if turn is None else turn(v) for k, v in reversed(table.items())}

    return Shape(canonical, turned)


def _set(element: Shape) -> Shape:
    inside = element.canonical
    by = None if element.sortable else encode_inside

    def canonical(values: set[Any]) -> list[Any]:
        return sorted(values if inside is None else map(inside, values), key=by)

    return Shape(canonical)


def _heap(element: Shape) -> Shape:
    inside, turn = element.canonical, element.turned
    by = None if element.sortable else encode_inside

    def canonical(heap: list[Any]) -> list[Any]:
        return sorted(heap if inside is None else map(inside, heap), key=by)

    def turned(heap: list[Any]) -> list[Any]:
        return _other_layout(heap if turn is None else [*map(turn, heap)])

    return Shape(canonical, turned)


def _other_layout(heap: list[Any]) -> list[Any]:
    """Another layout of the same heap, if there is one; what is laid out as no heap is the other way round."""
    try:
        in_order = sorted(heap)
        is_heap = all(heap[(i - 1) // 2] <= heap[i] for i in range(1, len(heap)))
    except TypeError:  # its elements do not compare: it is only ever emptied as a whole
        is_heap = False
    if not is_heap:
        return heap[::-1]
    if in_order == heap and len(heap) > 2:
        in_order[1], in_order[2] = in_order[2], in_order[1]  # siblings, and all that is below them is larger
    return in_order


# With order, around what may have none ------------------------------------------------------------------------------


def _dict(key: Shape, value: Shape) -> Shape:
    in_key, in_value, turn = key.canonical or _unchanged, value.canonical or _unchanged, value.turned
    changes = key.canonical is not None or value.canonical is not None
    return Shape(
        (lambda found: [(in_key(k), in_value(v)) for k, v in found.items()]) if changes else None,
        None if turn is None else (lambda found: {k: turn(v) for k, v in found.items()}),
    )


def _row(element: Shape, kind: type) -> Shape:
    inside, turn = element.canonical, element.turned
    return Shape(
        None if inside is None else (lambda found: [inside(v) for v in found]),
        None if turn is None else (lambda found: kind([turn(v) for v in found])),
        element.sortable,
    )


def _tuple(kind: type, arguments: tuple[Any, ...]) -> Shape:
    make: Change = getattr(kind, "_make", tuple)
    if make is not tuple:
        shapes = [*fields_of(kind).values()]
    elif not arguments:
        return AS_IT_IS
    elif len(arguments) == 2 and arguments[1] is ...:
        return _row(shape_of(arguments[0]), tuple)
    else:
        shapes = [*map(shape_of, arguments)]
    canonical = [shape.canonical for shape in shapes]
    turns = [shape.turned or _unchanged for shape in shapes]
    changed = any(shape.turned for shape in shapes)
    return Shape(
        _changing(tuple, canonical),
        (lambda found: make([turn(v) for turn, v in zip(turns, found, strict=True)])) if changed else None,
        all(shape.sortable for shape in shapes),
    )


def _struct(kind: type[msgspec.Struct]) -> Shape:
    fields = fields_of(kind)
    turns = {name: shape.turned for name, shape in fields.items() if shape.turned is not None}

    def turned(found: msgspec.Struct) -> msgspec.Struct:
        return msgspec.structs.replace(found, **{name: turn(getattr(found, name)) for name, turn in turns.items()})

    canonical = _changing(getter(tuple(fields)), [shape.canonical for shape in fields.values()])
    return Shape(canonical, turned if turns else None)


def _changing(values: Callable[[Any], tuple[Any, ...]], changes: list[Change | None]) -> Change | None:
    """Take a value apart, and change some of its parts."""
    wanted = [(i, change) for i, change in enumerate(changes) if change is not None]

    def canonical(found: Any) -> list[Any]:
        row = list(values(found))
        for i, change in wanted:
            row[i] = change(row[i])
        return row

    return canonical if wanted else None


def _union(alternatives: tuple[Any, ...]) -> Shape:
    """The value's own type says which of them it is, and the canonical form keeps that: two forms can look alike."""
    shapes = [shape_of(alternative) for alternative in alternatives]
    kinds = {get_origin(_bare(hint)) or _bare(hint): i for i, hint in enumerate(alternatives)}

    def canonical(found: Any) -> Any:
        which = kinds.get(type(found), -1)
        change = None if which < 0 else shapes[which].canonical
        return (which, found if change is None else change(found))

    def turned(found: Any) -> Any:
        which = kinds.get(type(found), -1)
        turn = None if which < 0 else shapes[which].turned
        return found if turn is None else turn(found)

    return Shape(
        canonical if any(shape.canonical for shape in shapes) else None,
        turned if any(shape.turned for shape in shapes) else None,
    )


def _bare(hint: Any) -> Any:
    """A type without its marks."""
    while True:
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        else:
            return hint
