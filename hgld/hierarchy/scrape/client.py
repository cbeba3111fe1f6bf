"""A polite client of the MediaWiki API: one pacer, one loop, every answer classified.

urllib3's own retries cannot do this: maxlag, API errors, HTML pages and truncated results all come
with status 200, or fail while the body is read. So each answer gets a verdict (see
``hgld.hierarchy.scrape.verdict``), every pause is taken here, and every asked key is accounted for.
As Wikimedia asks, the program names a contact.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests

from hgld import __version__
from hgld.config import ScrapeOptions
from hgld.errors import HgldError, Resumable, UsageError
from hgld.hierarchy.scrape.pacer import Pacer, pause_before
from hgld.hierarchy.scrape.verdict import Answer, classify
from hgld.http import Session, TooLarge, read_all
from hgld.tasks import say
from hgld.words import duration_text, single_blanks

Found = TypeVar("Found")
Ask = Callable[[Sequence[str]], Mapping[str, Any]]
Read = Callable[[Mapping[str, Any], Sequence[str]], dict[str, Found]]

LONGEST_PAUSE_S = 900.0  # a longer Retry-After ends the run; the same command goes on later
FAILURES_BEFORE_STOP = 20  # in a row, over all requests
FAILURES_BEFORE_FIRST_ANSWER = 3  # of connecting to a server that has not answered yet
FAILURES_BEFORE_SPLIT = 4  # of one batch that the server chokes on
WAIT_S = 5.0  # where the server asks to wait but does not say how long
TIMEOUT_S = (10, 60)  # to connect, between two bytes
LARGEST_ANSWER = 64_000_000  # bytes, unpacked; Wikimedia's limit for a result is 13 MB
LONGEST_TURN_S = 10.0  # between two requests; a longer wait is a pause, and reported
CUT_OFF = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)
DIRECTLY = {"http": "", "https": ""}  # past any proxy


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
    """True if the URL's host is this machine.

    Example:
        >>> on_this_machine("http://127.0.0.1:8080/api.php")
        True
    """
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class TooMuchAsked(Exception):
    """The batch has to be asked for in smaller parts; ``code`` is the server's word for it."""

    def __init__(self, code: str = "") -> None:
        self.code = code


class ApiClient:
    """Asks one or more MediaWiki APIs, one request at a time.

    Args:
        options: its contact, which goes into the User-Agent, and its manners: requests a second,
            over all hosts (those on this machine are not paced), maxlag and the time for an answer.
        sleep: waits; a parameter so that tests need not.
        clock: seconds that no one sets; likewise.

    Raises:
        UsageError: ``scrape.contact`` is not set.
    """

    def __init__(
        self,
        options: ScrapeOptions,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.sleep = sleep
        self.clock = clock
        self.pacer = Pacer(options.requests_per_second, clock=clock)
        self.requests = 0  # sent so far
        self.failures = 0  # in a row
        self.reached: set[str] = set()  # URLs that have answered
        self._warned: set[str] = set()
        self.session = Session()
        self.session.headers["User-Agent"] = user_agent(options.contact)
        self.session.headers["Promise-Non-Write-API-Action"] = "true"

    def __enter__(self) -> "ApiClient":
        return self

    def __exit__(self, *error: object) -> None:
        self.session.close()

    def fetch_batch(
        self,
        keys: Sequence[str],
        ask: Ask,
        read: Read[Found],
    ) -> dict[str, Found]:
        """Return the server's facts of each key; what an answer leaves out is asked for again.

        A result that is too large is cut by the server without an error; what it does not account
        for is asked for again, in halves where it accounted for nothing.

        Raises:
            Resumable: a single key that the server does not account for, however often asked.
        """
        if len(keys) == 1:
            for tries in range(1, FAILURES_BEFORE_SPLIT + 1):
                if found := _attempt(keys, ask, read):
                    return found
                self.sleep(pause_before(tries, 0.0))
            raise Resumable(
                f"the server answers, but not for '{keys[0]}' (it is left out, or damaged); what "
                "is finished is kept, run the same command again later"
            )
        found = _attempt(keys, ask, read)
        left = [key for key in keys if key not in found]
        half = len(left) if found else (len(left) + 1) // 2
        for part in (left[:half], left[half:]):
            found |= self.fetch_batch(part, ask, read) if part else {}
        return found

    def ask(
        self, url: str, action: str, parameters: Mapping[str, str], may_split: bool = False
    ) -> Mapping[str, Any]:
        """The JSON answer to one question.

        Where ``may_split`` holds, less is asked for rather than the same again and again.

        Raises:
            TooMuchAsked: the same would be answered in smaller parts.
            Resumable: the server fails again and again, or asks for a long pause.
            HgldError: the server refuses.
        """
        tries, choked, since = 0, 0, self.clock()
        while (answer := self._send(url, action, parameters)).kind != "ok":
            tries += 1
            self._pause(answer, url, tries, self.clock() - since)
            choked += answer.heavy
            if may_split and choked >= FAILURES_BEFORE_SPLIT:
                raise TooMuchAsked
        self.failures = 0
        self.pacer.speed_up()
        # Each warning is reported once: a new one may mean a changed API.
        warnings = answer.document.get("warnings")
        named = warnings if isinstance(warnings, dict) else {"": warnings} if warnings else {}
        for module, found in named.items():
            parts = found if isinstance(found, dict) else {}
            text = single_blanks(str(parts.get("warnings", parts.get("*", found))))
            if text not in self._warned and module != "result":  # a cut result is asked for again
                self._warned.add(text)
                say(f"{urlsplit(url).hostname} warns: {text}")
        return answer.document

    def download(self, url: str, most_bytes: int) -> bytes | None:
        """Return the bytes of a file, in turn with all other requests; None if it is not there.

        Raises:
            Resumable: the server cannot be reached, or asks for a pause.
        """
        self._take_turn(url)
        try:
            response, body = self._request("GET", url, most_bytes)
        except requests.RequestException as error:
            raise Resumable(f"{url}: {type(error).__name__}; try again later") from None
        if response.status_code == 200:
            return body
        answer = classify(response.status_code, response.headers, body)
        if answer.kind not in ("wait", "transient"):
            return None
        self._hold_back(url, pause_before(1, answer.pause_s or WAIT_S))
        raise Resumable(f"{url}: {answer.reason}; try again later")

    def _take_turn(self, url: str) -> None:
        """Wait until a request may be sent, as the server asked any process, and count it."""
        while not on_this_machine(url) and (left := self.pacer.take()) > 0:
            pause = f"a pause that was asked for lasts for {duration_text(left)} more"
            if left > LONGEST_PAUSE_S:
                kept = f"it is kept in {self.pacer.path}"
                raise Resumable(f"{url}: {pause}; run the same command again after it ({kept})")
            if left > LONGEST_TURN_S:
                say(f"{urlsplit(url).hostname}: {pause}")
            self.sleep(left)
        self.requests += 1

    def _hold_back(self, url: str, pause_s: float) -> None:
        """Keep to a pause however this process ends, and have others keep to it."""
        if pause_s and not on_this_machine(url):
            self.pacer.hold_back(pause_s)

    def _request(
        self, method: str, url: str, most_bytes: int, **more: Any
    ) -> tuple[requests.Response, bytes]:
        """Return the answer to one request, and its body; no redirect is followed."""
        proxies = DIRECTLY if on_this_machine(url) else None
        options = {"timeout": TIMEOUT_S, "allow_redirects": False, "stream": True, **more}
        with self.session.deadline(self.options.answer_timeout):
            response = self.session.request(method, url, proxies=proxies, **options)
            body = read_all(response, most_bytes)
        return response, body

    def _send(self, url: str, action: str, parameters: Mapping[str, str]) -> Answer:
        """Send one request when it may be sent, and classify its answer."""
        self._take_turn(url)
        lag = {"maxlag": str(self.options.maxlag)} if self.options.maxlag else {}
        try:
            question = {"action": action, "format": "json", "formatversion": "2"}
            response, body = self._request(
                "POST", url, LARGEST_ANSWER, params=question, data={**parameters, **lag}
            )
        except CUT_OFF:
            answer = Answer("transient", reason="the answer was cut off", heavy=True)
        except TooLarge as error:
            answer = Answer("transient", reason=str(error), heavy=True)
        except (requests.ConnectTimeout, requests.ConnectionError) as error:
            return Answer("transient", reason=f"no connection ({type(error).__name__})")
        except requests.ReadTimeout:
            return Answer("transient", reason=f"no byte for {TIMEOUT_S[1]} s", heavy=True)
        except requests.Timeout as error:
            return Answer("transient", reason=str(error), heavy=True)
        except requests.RequestException as error:
            return Answer("fatal", reason=single_blanks(str(error)))
        else:
            answer = classify(response.status_code, response.headers, body)
        self.reached.add(url)
        self._hold_back(url, answer.pause_s or 0.0)
        return answer

    def _pause(self, answer: Answer, url: str, tries: int, waited_s: float) -> None:
        """Wait before the same is asked again; raise if that makes no sense."""
        if answer.kind == "split":
            raise TooMuchAsked(answer.code)
        if answer.kind == "fatal":
            raise HgldError(f"{url}: {answer.reason}; what is finished is kept")
        pause_s = answer.pause_s or 0.0
        if pause_s > LONGEST_PAUSE_S:
            raise Resumable(
                f"{url}: {answer.reason}; the server asks for a pause of {duration_text(pause_s)}; "
                "what is finished is kept, run the same command again after it"
            )
        if answer.kind == "wait":
            self.pacer.slow_down()
            pause = pause_before(tries, WAIT_S if answer.pause_s is None else pause_s)
        else:
            self.failures += 1
            if self.failures >= FAILURES_BEFORE_FIRST_ANSWER and url not in self.reached:
                raise Resumable(
                    f"{url}: {answer.reason}, {self.failures} times and never an answer; check the "
                    "network and the URL, then run the same command again"
                )
            if self.failures >= FAILURES_BEFORE_STOP:
                raise Resumable(
                    f"{url}: {answer.reason}, {self.failures} times in a row; "
                    "what is finished is kept, run the same command again later"
                )
            pause = pause_before(self.failures, pause_s)
        busy = f" (busy for {duration_text(waited_s)})" if waited_s > 60 else ""
        reason = answer.reason.rstrip(".") + busy
        say(f"{urlsplit(url).hostname}: {reason}; attempt {tries + 1} in {pause:.0f} s")
        self._hold_back(url, pause)
        self.sleep(pause)


def _attempt(keys: Sequence[str], ask: Ask, read: Read[Found]) -> dict[str, Found]:
    """The facts of one answer; none if too much was asked for."""
    try:
        return read(ask(keys), keys)
    except TooMuchAsked:
        return {}
