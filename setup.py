"""The one part of the metadata that pyproject.toml cannot express: a long description in which nothing is broken.

README.md links to files of the repository. Outside of it these links lead nowhere, so the package's own description has
their text alone, and neither the picture nor its caption.
"""

import re
from pathlib import Path

from setuptools import setup


def long_description(readme: str) -> str:
    """A README without pictures, their captions, and links to files beside it."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n\n\*[^*]*\*\n\n", "", readme)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


if __name__ == "__main__":
    readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    setup(long_description=long_description(readme), long_description_content_type="text/markdown")
