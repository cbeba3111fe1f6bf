"""The jinja templates of pages, cards and pipeline files."""

from collections.abc import Callable
from typing import Any

import jinja2


def open_templates(*, escaped: bool, **filters: Callable[..., Any]) -> jinja2.Environment:
    """Return ``hgld/templates`` as an environment that refuses undefined names.

    Args:
        escaped: escape values for HTML.
        filters: that the templates use, by name.

    Example:
        >>> templates = open_templates(escaped=True, twice=lambda text: 2 * text)
        >>> templates.from_string("{{ text | twice }}").render(text="<")
        '&lt;&lt;'
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hgld"),
        autoescape=escaped,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(filters)
    return environment
