"""Who asks and who is asked, as Wikimedia's etiquette tells them apart.

A program has to say how its user can be reached. Hosts of this machine itself, where tests and the
quickstart have their wikis, stand outside: nobody shares them.
"""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

import requests

from hgld import __version__
from hgld.errors import UsageError

__all__ = ["on_this_machine", "user_agent"]


def user_agent(contact: str) -> str:
    """The User-Agent that Wikimedia's policy asks for.

    Raises:
        UsageError: no contact, or nothing that looks like one.
    """
    contact = contact.strip()
    sendable = contact.isascii() and contact.isprintable()
    if not sendable or not re.search(r"\S@\S|https?://\S", contact):
        raise UsageError(
            f"scrape.contact is {contact!r}; Wikimedia asks every program for a contact in its "
            "User-Agent and turns away those without: set scrape.contact to your e-mail or URL, "
            "in plain ASCII (in the pipeline file, or --set scrape.contact=...)"
        )
    return f"hgld/{__version__} ({contact}) python-requests/{requests.__version__}"


def on_this_machine(url: str) -> bool:
    """Whether the URL's host is this machine itself.

    Example:
        >>> on_this_machine("http://127.0.0.1:8080/api.php")
        True
    """
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
