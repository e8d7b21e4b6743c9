"""The documentation: Markdown pages whose Python blocks are executed, and a reference made from the docstrings.

    sphinx-build -W --keep-going -j 2 docs build/docs

Every page is plain Markdown, so that it reads well on the code host. When it is built,

- each `python` block becomes a cell of a notebook, which myst-nb runs, with what it prints and draws below it;
- `notebooks/` holds MyST notebooks, which Jupyter opens as they are (with jupytext); they run in the same way;
- each comment `<!-- names of: MODULE ... -->` becomes the reference of the public names that live in those modules;
- the comment `<!-- messages -->` becomes the list of all error messages in the code;
- formulas become MathML, which browsers draw by themselves: nothing is fetched, neither here nor by the reader.
"""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import rkhs_control

project = "rkhs_control"
author = "the authors of rkhs_control"
version = release = rkhs_control.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

highlight_language = "none"
smartquotes = False
html_theme = "furo"
html_title = "rkhs_control"
html_math_renderer = "mathml"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["page.css"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

nb_execution_mode = "force"
nb_execution_show_tb = True  # a block that fails is a warning, and with -W the end
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_output_stderr = "warn"

napoleon_use_param = False  # types are words, not links
autodoc_default_options = {"members": True, "member-order": "bysource", "exclude-members": "__init__, __new__"}
autodoc_typehints_format = "short"
autodoc_type_aliases = {"FloatArray": "FloatArray", "npt.ArrayLike": "ArrayLike"}
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 160

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n"
CELL = "```{code-cell} ipython3\n"
FIGURES = f"{CELL}:tags: [remove-cell]\n%matplotlib inline\n%config InlineBackend.figure_formats = ['svg']\n```\n\n"


def prepare(app: Any, page: str, source: list[str]) -> None:
    """Make cells of the Python blocks of a page, and reference of its lists of modules."""
    text = re.sub(r"<!-- names of: ([\w. ]+) -->", lambda found: reference(found[1].split()), source[0])
    text = text.replace("<!-- messages -->", messages())
    if "```python\n" in text:
        text = NOTEBOOK + text.replace("```python\n", CELL)
    source[0] = text.replace(CELL, FIGURES + CELL, 1)


def reference(modules: list[str]) -> str:
    """Directives for the public names of some modules."""
    lines = []
    for name in (name for module in modules for name in public_names(module)):
        kind = "autoclass" if isinstance(getattr(rkhs_control, name), type) else "autofunction"
        lines.append(f".. {kind}:: rkhs_control.{name}\n")
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```"


def public_names(module: str) -> list[str]:
    """Those that `import rkhs_control` offers; a folder stands for all modules in it."""
    return [name for name, home in rkhs_control._HOMES.items() if f"{home}.".startswith(f".{module}.")]


def messages() -> str:
    """Every message that the package raises as an error of its own, module by module."""
    errors = {*public_names("errors"), "UnreadableError", "RejectedError"}
    lines = []
    for folder in ("rkhs_control", "models", "scenarios"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            raised = (node.exc for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Raise))
            calls = [call for call in raised if isinstance(call, ast.Call) and getattr(call.func, "id", "") in errors]
            found = sorted({(call.func.id, wording(call.args[0])) for call in calls if call.args})
            if found:
                lines.append(f"\n`{file.relative_to(ROOT)}`\n")
                lines.extend(f"- {name}: `` {text} ``" for name, text in found if text.strip(". :"))
    return "\n".join(lines)


def wording(node: ast.expr) -> str:
    """The text of an f-string or a sum of them, with dots for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(wording(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return wording(node.left) + wording(node.right)
    return "..."


def without_repetition(app: Any, env: Any) -> None:
    """Mend notebooks to download: where streams were merged into the first, the others are still there, too."""
    for file in Path(env.mystnb_config.output_folder, "notebooks").glob("*.ipynb"):
        notebook = json.loads(file.read_text(encoding="utf-8"))
        for cell in (cell for cell in notebook["cells"] if "outputs" in cell):
            names = [output.get("name", number) for number, output in enumerate(cell["outputs"])]
            cell["outputs"] = [o for number, o in enumerate(cell["outputs"]) if names.index(names[number]) == number]
        file.write_text(json.dumps(notebook, indent=1), encoding="utf-8")


def mathml(self: Any, node: Any, display: str) -> None:
    """A formula as MathML."""
    from docutils.nodes import SkipNode
    from latex2mathml.converter import convert

    formula = convert(node.astext(), display=display)
    self.body.append(f'<div class="math">{formula}</div>' if display == "block" else formula)
    raise SkipNode


def plain_code(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Code in docstrings has single backquotes, as in Markdown; endings may follow it at once."""
    lines[:] = re.sub(r"`+([^`]+)`+", r"``\1``\\ ", "\n".join(lines)).split("\n")


def plain_types(app: Any, what: str, name: str, obj: Any, options: Any, given: str | None, result: str | None) -> Any:
    """Aliases of types by their own names."""
    pattern = r"TypeAliasForwardRef\('(?:\w+\.)?(\w+)'\)|\bnpt\.(?=ArrayLike|NDArray)"
    return tuple(text and re.sub(pattern, lambda found: found[1] or "", text) for text in (given, result))


def setup(app: Any) -> None:
    """What Sphinx calls before it builds."""
    app.connect("source-read", prepare)
    app.connect("env-updated", without_repetition)
    app.connect("autodoc-process-docstring", plain_code)
    app.connect("autodoc-process-signature", plain_types)
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: mathml(self, node, "inline"), None),
        block_renderers=(lambda self, node: mathml(self, node, "block"), None),
    )
