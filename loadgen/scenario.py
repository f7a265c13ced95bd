"""A scenario file: the classes of request, their shares, and the phases with their rates."""

from dataclasses import dataclass
from pathlib import Path

from exporters.errors import UsageError
from exporters.yaml_reader import Node, Reader, nearest, open_yaml, parse_yaml
from loadgen.arrivals import Phase

SHIPPED = Path(__file__).parent / "scenarios"


@dataclass(frozen=True, slots=True)
class TokenRange:
    """A number of tokens, drawn uniformly from `least` to `most`, both included."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Shape:
    """One class of request: its share of the mix, the tokens of its prompt, and those that the engine generates.

    With `document`, the prompt is preceded by a document of the corpus.
    """

    name: str
    share: float
    prompt_tokens: TokenRange
    output_tokens: TokenRange
    document: bool


@dataclass(frozen=True, slots=True)
class Scenario:
    """The whole file; times in seconds, `corpus` has the tokens of each shared document."""

    name: str
    description: str
    seed: int
    timeout: float
    stream_share: float
    chat_share: float
    corpus: tuple[int, ...]
    shapes: tuple[Shape, ...]
    phases: tuple[Phase, ...]


def find(name: str) -> Path:
    """The file of a scenario, by path or by the name of a shipped one.

    Raises:
        UsageError: there is no such scenario.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = SHIPPED / f"{name}.yaml"
    if path.name == name and shipped.is_file():
        return shipped
    names = sorted(file.stem for file in SHIPPED.glob("*.yaml"))
    raise UsageError(f"{name}: is neither a file nor a scenario that comes with the program; {nearest(name, names)}")


def load(path: Path) -> Scenario:
    """Read a scenario.

    Raises:
        FileError: every mistake in the file.
        UsageError: the file cannot be read.
    """
    return _parse(open_yaml(path))


def loads(text: str, source: str = "scenario.yaml") -> Scenario:
    """Read a scenario from text; raises as `load` does."""
    return _parse(parse_yaml(text, source))


_KEYS = ("name", "description", "seed", "timeout", "stream_share", "chat_share", "corpus", "classes", "phases")


def _parse(reader: Reader) -> Scenario:
    root = reader.node()
    keys = root.fields(_KEYS, required=("name", "classes", "phases"))
    corpus = _corpus(keys.get("corpus"))
    scenario = Scenario(
        name=(keys["name"].name() or "") if "name" in keys else "",
        description=(keys["description"].text() or "") if "description" in keys else "",
        seed=int((keys["seed"].number(least=0, whole=True) or 0) if "seed" in keys else 0),
        timeout=(keys["timeout"].duration() or 180.0) if "timeout" in keys else 180.0,
        stream_share=_fraction(keys.get("stream_share"), 0.9),
        chat_share=_fraction(keys.get("chat_share"), 0.9),
        corpus=corpus,
        shapes=_shapes(keys.get("classes"), has_corpus=bool(corpus)),
        phases=_phases(keys.get("phases")),
    )
    reader.finish()
    return scenario


def _fraction(node: Node | None, default: float) -> float:
    if node is None:
        return default
    value = node.number(least=0)
    if value is not None and value > 1:
        node.problem(f"{node.quoted()} is no share; write a number from 0 to 1")
    return default if value is None else value


def _corpus(node: Node | None) -> tuple[int, ...]:
    sizes = [item.number(least=1, whole=True) for item in node.items()] if node else []
    return tuple(int(size) for size in sizes if size is not None)


def _shapes(node: Node | None, *, has_corpus: bool) -> tuple[Shape, ...]:
    shapes: list[Shape] = []
    needed = ("share", "prompt_tokens", "output_tokens")
    for name, item in node.entries() if node else []:
        keys = item.fields((*needed, "document"), required=needed)
        if any(shape.name == name for shape in shapes):
            item.problem(f"{name!r} is given twice; keep one")
        document = bool(keys["document"].boolean()) if "document" in keys else False
        if document and not has_corpus:
            keys["document"].problem("there is no corpus to draw a document from; add one, such as corpus: [800, 3500]")
        shapes.append(
            Shape(
                name=name,
                share=(keys["share"].number(least=0) or 0.0) if "share" in keys else 0.0,
                prompt_tokens=_token_range(keys.get("prompt_tokens")),
                output_tokens=_token_range(keys.get("output_tokens")),
                document=document,
            )
        )
    if node and not node.reader.problems and not any(shape.share > 0 for shape in shapes):
        node.problem("no class has a share above 0, so nothing would be sent; give one a share, such as share: 1")
    return tuple(shapes)


def _token_range(node: Node | None) -> TokenRange:
    if node is None:
        return TokenRange(1, 1)
    keys = node.fields(("min", "max"), required=("min", "max"))
    least = keys["min"].number(least=1, whole=True) if "min" in keys else None
    most = keys["max"].number(least=1, whole=True) if "max" in keys else None
    if least is None or most is None:
        return TokenRange(1, 1)
    if most < least:
        keys["max"].problem(f"{int(most)} is below the min of {int(least)}; exchange them")
    return TokenRange(int(least), int(most))


def _phases(node: Node | None) -> tuple[Phase, ...]:
    phases: list[Phase] = []
    for item in node.items() if node else []:
        keys = item.fields(("name", "duration", "rate"), required=("name", "duration", "rate"))
        name = keys["name"].name() if "name" in keys else None
        if name and any(phase.name == name for phase in phases):
            keys["name"].problem(f"{name!r} is the name of an earlier phase; names must differ")
        duration = keys["duration"].duration() if "duration" in keys else None
        rate = keys["rate"].number(least=0) if "rate" in keys else None
        phases.append(Phase(name or "", duration or 0.0, rate or 0.0))
    if node and not phases and not node.reader.problems:
        node.problem("names no phase; write at least one, such as {name: steady, duration: 2m, rate: 4}")
    return tuple(phases)
