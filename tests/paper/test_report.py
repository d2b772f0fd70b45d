"""The report page, as a browser shows it."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coefdyn.cli import main
from coefdyn.paper import experiments
from coefdyn.paper.sections import SECTIONS
from tests.paper.worlds import fill

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
SHOWN = ("principle3_position", "principle2_readout")
# What a person would do, and what they would see; written where --dump-dom shows it.
VISIT = """
<script>
const seen = {};
const rows = () => [...document.querySelectorAll("#points tbody tr.point")];
const heads = () => [...document.querySelectorAll("#points th")];
const column = name => heads().findIndex(th => th.textContent === name);
const values = name => rows().map(row => Number(row.children[column(name)].textContent));
seen.wide = document.documentElement.scrollWidth;
seen.inner = window.innerWidth;
seen.pictures = [...document.images].map(i => [i.naturalWidth, i.getBoundingClientRect().right]);
const box = document.getElementById("forest").parentElement;
seen.hidden = box.scrollWidth - box.clientWidth;
seen.all = rows().length;
heads()[column("accuracy")].click();
seen.up = values("accuracy");
heads()[column("accuracy")].click();
seen.down = values("accuracy");
document.getElementById("experiment").value = "principle3_position";
document.getElementById("experiment").dispatchEvent(new Event("change"));
seen.chosen = rows().length;
document.getElementById("filter").value = "relu constant";
document.getElementById("filter").dispatchEvent(new Event("input"));
seen.filtered = rows().map(row => row.textContent);
const key = (element, name) => element.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
key(rows()[0], " ");
seen.runs = document.querySelectorAll("#points tr.runs table tr").length;
seen.curves = document.querySelectorAll("#points tr.runs polyline").length;
seen.dead = [...document.querySelectorAll("a")].filter(a => !document.querySelector(a.hash)).length;
seen.links = document.querySelectorAll("nav a").length;
seen.drawn = document.querySelectorAll("#forest svg circle").length;
document.querySelector("details summary").click();
seen.opened = document.querySelector("details").open;
seen.expanded = rows()[0].getAttribute("aria-expanded");
rows()[0].click();
seen.closed = document.querySelectorAll("#points tr.runs").length;
key(heads()[column("accuracy")], "Enter");
seen.focus = document.activeElement.textContent;
document.body.dataset.seen = JSON.stringify(seen);
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("page")
    fill(results, stems=SHOWN)
    assert main(["report", f"paths.results={results}"]) == 0
    return results / "report" / "index.html"


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_but_itself(page: Path) -> None:
    parser, text = _Links(), page.read_text()
    parser.feed(text)
    assert len(parser.links) >= len(SHOWN)
    assert all(link.startswith(("data:", "#")) for link in parser.links)
    assert {stem for stem in experiments() if f'id="smoke-{stem}"' in text} == set(SHOWN)
    assert "180 runs, 180 h in all; commit 0000000000" in text


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1600, 1280, 400])
def test_a_browser_can_sort_and_filter_it(page: Path, tmp_path: Path, width: int) -> None:
    visited = tmp_path / "visited.html"
    visited.write_text(page.read_text().replace("</html>", VISIT + "</html>"))
    # Chromium's own window is never narrower than 500 pixels; a frame is.
    frame = tmp_path / "frame.html"
    frame.write_text(f'<iframe src="visited.html" width="{width}" height="900"></iframe>')
    done = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         "--allow-file-access-from-files", "--virtual-time-budget=8000", "--dump-dom",
         visited.as_uri() if width > 500 else _with_script(frame)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    attribute = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert attribute is not None
    seen = json.loads(attribute.group(1).replace("&quot;", '"'))
    assert seen["wide"] <= seen["inner"]
    assert all(size > 0 and right <= seen["inner"] for size, right in seen["pictures"])
    assert len(seen["pictures"]) == len(SHOWN) + 1  # and that of the output space
    assert seen["hidden"] <= 0  # no verdict is out of sight
    assert seen["all"] == 12 + 18
    assert seen["up"] == sorted(seen["up"]) != seen["down"]
    assert seen["down"] == sorted(seen["down"], reverse=True)
    assert seen["chosen"] == 12
    assert len(seen["filtered"]) == 2
    assert all("relu" in text for text in seen["filtered"])
    assert (seen["runs"], seen["expanded"], seen["closed"]) == (16, "true", 0)
    assert seen["curves"] == 5  # a line per seed
    sections = page.read_text().count("<section ")  # each has a link in the contents
    assert (seen["links"], seen["dead"], seen["opened"]) == (sections, 0, True)
    assert sections >= len(SECTIONS)
    assert seen["drawn"] == 3 + 8  # the claims that two experiments decide
    assert seen["focus"] == "accuracy"


def _with_script(frame: Path) -> str:
    """A page whose frame is as narrow as a telephone; it repeats what the frame has seen."""
    frame.write_text(
        frame.read_text()
        + """<script>setTimeout(() => { document.body.dataset.seen =
        document.querySelector("iframe").contentDocument.body.dataset.seen }, 3000)</script>"""
    )
    return frame.as_uri()
