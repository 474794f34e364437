"""Small bugs, planted one at a time in the functions and constants of a module.

Operators: comparisons (boundary, negation), conditions negated, `and`/`or`, `not` left out, numbers
and truth values, arithmetic and bits, statements left out, `continue`/`break`, values returned,
`min`/`max`, `any`/`all`, `sorted` left out, words of the core (`Reason.REJECTED`).

Not mutated: `assert` statements (they state the impossible), `__repr__`, texts, class bodies
and default arguments, types.

A mutant's name has no line number, so a list of survivors outlives edits elsewhere in the file.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from enum import EnumMeta
from types import ModuleType

from dispatcher.core import model
from schema_dist.core import absences
from schema_dist.core import model as schemas

_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


def _words(*modules: ModuleType) -> dict[str, dict[str, str]]:
    """For each word the next one of its kind. Kinds of one name have no word in common."""
    words: dict[str, dict[str, str]] = {}
    for kind in (value for module in modules for value in vars(module).values()):
        if isinstance(kind, EnumMeta) and len(members := list(kind.__members__)) > 1:
            following = [*members[1:], members[0]]
            words.setdefault(kind.__name__, {}).update(zip(members, following, strict=True))
    return words


_WORDS = _words(model, schemas, absences)
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    module: str
    place: str  # Class.function; the constant's name if it is one
    lines: range  # of the statement (the head, if it has a body): a test runs through it or not
    change: str  # before -> after, and its number among several alike in the same place
    original: ast.Module
    target: ast.AST
    replacement: ast.AST

    @property
    def name(self) -> str:
        return f"{self.module}.{self.place}: {self.change}"

    @property
    def tree(self) -> ast.Module:
        """The whole module, mutated. O(module)."""
        return _with(self.original, self.target, self.replacement)


def mutants_of(module: str, source: str) -> list[Mutant]:
    tree = ast.parse(source)
    found: list[Mutant] = []
    alike: dict[tuple[str, str], int] = {}
    for place, node in _places(tree):
        for lines, (target, replacement, before, after) in _changes(node):
            change = f"`{before}` -> `{after}`"
            number = alike[place, change] = alike.get((place, change), 0) + 1
            if number > 1:
                change += f" ({number})"
            found.append(Mutant(module, place, lines, change, tree, target, replacement))
    return found


def _places(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Functions, methods, and constants that are numbers or made of such."""
    for node in tree.body:
        if isinstance(node, _Functions):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, _Functions) and inner.name != "__repr__":
                    yield f"{node.name}.{inner.name}", inner
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and _is_number(node.value):
                yield target.id, node


def _is_number(value: ast.expr) -> bool:
    kinds = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    inner = [node for node in ast.walk(value) if not isinstance(node, ast.Name | ast.Load)]
    return all(isinstance(node, kinds) for node in inner) and any(
        isinstance(node, ast.Constant) and type(node.value) is int for node in inner
    )


_Change = tuple[ast.expr | ast.stmt, ast.AST, str, str]


def _changes(root: ast.AST) -> Iterator[tuple[range, _Change]]:
    if isinstance(root, _Functions):
        for statement in root.body:
            yield from _changes_in(statement, range(0))
    elif isinstance(root, ast.Assign | ast.AnnAssign) and root.value is not None:
        yield from _changes_in(root.value, _lines_of(root))


def _changes_in(node: ast.AST, lines: range) -> Iterator[tuple[range, _Change]]:
    if isinstance(node, ast.Assert):
        return
    if isinstance(node, ast.stmt):
        lines = _lines_of(node)
        for change in _of_statement(node):
            yield lines, change
    elif isinstance(node, ast.match_case) and node.guard is not None:
        lines = _lines_of(node.guard)
    if isinstance(node, ast.expr):
        for replacement in _of_expression(node):
            yield lines, (node, replacement, _text(node), _text(replacement))
    for condition in _conditions(node):
        if not isinstance(condition, ast.Compare | ast.UnaryOp):  # Those have their own.
            negated = ast.UnaryOp(ast.Not(), condition)
            yield lines, (condition, negated, _text(condition), _text(negated))
    for child in _children(node):
        yield from _changes_in(child, lines)


def _lines_of(node: ast.stmt | ast.expr) -> range:
    match node:
        case ast.Match(subject=subject):
            end = subject.end_lineno
        case ast.If() | ast.While() | ast.For() | ast.With() | ast.Try() | ast.FunctionDef():
            end = max(node.lineno, node.body[0].lineno - 1)
        case _:
            end = node.end_lineno
    return range(node.lineno, (end or node.lineno) + 1)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "pattern"):
            children = value if isinstance(value, list) else [value]
            yield from (child for child in children if isinstance(child, ast.AST))


def _conditions(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return [node.test]
    return list(node.ifs) if isinstance(node, ast.comprehension) else []


def _of_statement(node: ast.stmt) -> Iterator[_Change]:
    """Left out, or another."""
    text = _text(node)
    match node:
        case ast.Expr(value=ast.Constant()):
            return  # a docstring
        case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Delete() | ast.Raise():
            if not _is_assert_never(node):
                yield node, ast.Pass(), text, "pass"
        case ast.AnnAssign(value=ast.expr()):
            yield node, ast.Pass(), text, "pass"
        case ast.Continue():
            yield node, ast.Break(), text, "break"
        case ast.Break():
            yield node, ast.Continue(), text, "continue"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, ast.Return(ast.Constant(None)), text, "return None"
        case ast.Return(value=None):
            yield node, ast.Pass(), text, "pass"
        case _:
            pass
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        other = copy.copy(node)
        other.op = _ARITHMETIC[type(node.op)]()
        yield node, other, text, _text(other)


def _is_assert_never(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "assert_never"
    )


def _of_expression(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare():
            for at, op in enumerate(node.ops):
                other = copy.copy(node)
                other.ops = [*node.ops[:at], _BOUNDARY[type(op)](), *node.ops[at + 1 :]]
                yield other
            if any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops):
                yield ast.UnaryOp(ast.Not(), node)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.UnaryOp(op=ast.USub()):
            yield node.operand
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        case ast.Constant(value=int() as value):  # or bool, which is an int
            yield ast.Constant(not value if isinstance(value, bool) else value + 1)
        case _:
            yield from _of_name(node)


def _of_name(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=args) if name in _CALLED:
            keywords = [] if name == "sorted" else node.keywords
            yield ast.Call(ast.Name(_CALLED[name], ast.Load()), args, keywords)
        case ast.Attribute(value=ast.Name(id=kind), attr=name) if name in _WORDS.get(kind, {}):
            yield ast.Attribute(node.value, _WORDS[kind][name], ast.Load())
        case _:
            pass


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _with(tree: ast.Module, target: ast.AST, replacement: ast.AST) -> ast.Module:
    """A copy of the way from the root to the target; all else is shared."""

    def rebuilt(node: ast.AST) -> ast.AST | None:
        if node is target:
            return ast.copy_location(copy.copy(replacement), node)
        for name, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            for at, child in enumerate(children):
                new = rebuilt(child) if isinstance(child, ast.AST) else None
                if new is not None:
                    changed = copy.copy(node)
                    in_list = isinstance(value, list)
                    setattr(changed, name, [*value[:at], new, *value[at + 1 :]] if in_list else new)
                    return changed
        return None

    result = rebuilt(tree)
    assert isinstance(result, ast.Module)
    return ast.fix_missing_locations(result)
