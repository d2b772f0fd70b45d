"""The report page, as a browser shows it."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coefdyn.cli.figure import report
from coefdyn.paper.figures import STEMS
from coefdyn.results.files import Shelf
from tests.paper.worlds import record, right, runs_of

pytestmark = pytest.mark.xdist_group("worlds")  # whose plans take long, once

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
EXPERIMENTS = ("principle3_position", "principle2_readout")
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
const box = document.getElementById("verdicts").parentElement;
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
    made = Shelf(results, "smoke")
    for stem in EXPERIMENTS:
        made.write(stem, runs_of(stem), {r.run_id: record(stem, r, right) for r in runs_of(stem)})
    assert report([f"paths.results={results}"]) == 0
    return results / "report" / "index.html"


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_but_itself(page: Path) -> None:
    links = _Links()
    links.feed(page.read_text())
    assert len(links.found) >= len(EXPERIMENTS)
    assert all(link.startswith("data:") for link in links.found)
    text = page.read_text()
    for stem in EXPERIMENTS:
        assert f'id="smoke-{stem}"' in text
    assert "24 runs, 24 h in all; commit 0000000000" in text
    assert len(STEMS) > len(EXPERIMENTS)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 390])
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
    found = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert found is not None
    seen = json.loads(found.group(1).replace("&quot;", '"'))
    assert seen["wide"] <= seen["inner"]
    assert all(size > 0 and right <= seen["inner"] for size, right in seen["pictures"])
    assert len(seen["pictures"]) == len(EXPERIMENTS)
    assert seen["hidden"] <= 0  # no verdict is out of sight
    assert seen["all"] == 12 + 18
    assert seen["up"] == sorted(seen["up"]) != seen["down"]
    assert seen["down"] == sorted(seen["down"], reverse=True)
    assert seen["chosen"] == 12
    assert len(seen["filtered"]) == 2
    assert all("relu" in text for text in seen["filtered"])
    assert (seen["runs"], seen["expanded"], seen["closed"]) == (3, "true", 0)
    assert seen["focus"] == "accuracy"


def _with_script(frame: Path) -> str:
    """A page whose frame is as narrow as a telephone; it repeats what the frame has seen."""
    frame.write_text(
        frame.read_text()
        + """<script>setTimeout(() => { document.body.dataset.seen =
        document.querySelector("iframe").contentDocument.body.dataset.seen }, 3000)</script>"""
    )
    return frame.as_uri()
