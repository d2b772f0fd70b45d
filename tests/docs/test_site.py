"""The documentation as a site: it builds, loads nothing from a network, and fits its window."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TAG = re.compile(r"<(?:script|img|iframe|link)\b[^>]*>")
SOURCE = re.compile(r"(?:src|href)=\"?([^\s\">]+)")
# Every page in a frame of this width; wider than its frame is cut off.
LOOK = """<body>{frames}<script>
setTimeout(() => {{
  const seen = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument.documentElement;
    const broken = [...frame.contentDocument.images].filter(image => !image.naturalWidth);
    return [frame.getAttribute("src"), page.scrollWidth, page.clientWidth, broken.length];
  }});
  document.body.dataset.seen = JSON.stringify(seen);
}}, 6000)</script></body>"""

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return place


def test_every_page_is_there_and_loads_nothing_from_a_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert {page.stem for page in PAGES if page.parent.name == "docs"} <= {p.stem for p in pages}
    for page in pages:
        tags = [tag for tag in TAG.findall(page.read_text()) if "canonical" not in tag]
        sources = [address for tag in tags for address in SOURCE.findall(tag)]
        assert sources
        assert [address for address in sources if address.startswith(("http", "//"))] == []
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\(\"?(?:https?:)?//", sheet.read_text()), sheet.name


def test_equations_are_mathml(site: Path) -> None:
    text = (site / "concepts.html").read_text()
    assert text.count("<math") > 20
    assert "$" not in re.sub(r"<(script|code|pre).*?</\1>", "", text, flags=re.DOTALL)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 400])
def test_no_page_is_wider_than_its_window(site: Path, width: int) -> None:
    pages = sorted(path.name for path in site.glob("*.html") if path.name != "404.html")
    frames = "".join(
        f'<iframe src="{page}" width="{width}" height="900"></iframe>' for page in pages
    )
    look = site / f"look-{width}.html"
    look.write_text(LOOK.format(frames=frames))
    done = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         "--allow-file-access-from-files", "--virtual-time-budget=15000", "--dump-dom",
         look.as_uri()],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    look.unlink()
    attribute = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert attribute is not None, done.stderr[-2000:]
    seen = json.loads(attribute.group(1).replace("&quot;", '"'))
    assert [page for page, *_ in seen] == pages
    assert [(page, wide, inner) for page, wide, inner, _ in seen if wide > inner] == []
    assert [page for page, *_, broken in seen if broken] == []
