"""The report in a real browser: opened from disk, and in the artifact pane of a real MLflow UI."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest

import scrib_mlflow
from scrib_mlflow.report import monitoring, page
from scrib_mlflow.workflows.demo import HOST, free_port, stop
from tests.conftest import PATIENCE, copy_store, using
from tests.models import draw_mixture, register_mixture
from tests.report.monitors import start, watch
from tests.report.test_report import draw, make, thresholds
from tests.test_remote import wait_for

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed, so there is no browser to look with"
)
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")
SCHEMES = ("light", "dark")
SECONDS = 1000 * PATIENCE  # in milliseconds


@pytest.fixture(scope="module")
def site(empty_store, tmp_path_factory, drawn):
    """A certified version, in a store with an MLflow server before it."""
    folder = tmp_path_factory.mktemp("site")
    port = free_port()
    store = copy_store(empty_store, folder)
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "-h", HOST]
    command += ["-p", str(port), "--backend-store-uri", store]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
        try:
            with using(store, folder), drawn():
                base = register_mixture()
                draw_mixture(3000, seed=1).to_parquet("rows.parquet")
                done = scrib_mlflow.calibrate(base, "rows.parquet", "label", risk_targets=0.1)
            address = f"http://{HOST}:{port}"
            wait_for(f"{address}/health", process, folder / "log")
            yield address, done, folder
        finally:
            stop(process)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Visit:
    """A page, with everything that it asked for and complained of."""

    def __init__(self, browser, scheme="light"):
        self.page = browser.new_page(color_scheme=scheme, viewport={"width": 1300, "height": 900})
        self.requests, self.complaints = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(("page", str(error))))
        self.page.on("console", self._hear)

    def _hear(self, message):
        if message.type in {"error", "warning"}:
            self.complaints.append((message.location["url"], message.text))


def report_file(done, folder):
    with using(f"sqlite:///{folder / 'mlflow.db'}", folder):
        return Path(
            mlflow.artifacts.download_artifacts(run_id=done.run_id, artifact_path="report.html")
        )


def certificate_cells(frame):
    rows = frame.locator("#certificate-table tbody tr").all()
    return [[cell.inner_text().strip() for cell in row.locator("th, td").all()] for row in rows]


def stored_cells(done, folder):
    """Return what scrib.json says, as the table should show it."""
    with using(f"sqlite:///{folder / 'mlflow.db'}", folder):
        text = mlflow.artifacts.load_text(f"runs:/{done.run_id}/scrib.json")
    stored = json.loads(text)
    claims, measured = stored["certificate"]["claims"], stored["certify_report"]["by_class"]
    return [
        [
            claim["name"],
            f"{claim['n']:,}",
            f"{claim['n_certain']:,}",
            f"{claim['n_wrong']:,}",
            f"{100 * claim['risk']:.1f} %",
            f"{100 * measured[claim['name']]['top1_risk_certain']:.1f} %",
            f"{100 * measured[claim['name']]['top1_risk']:.1f} %",
            f"{100 * claim['risk_upper']:.1f} %",
            f"{100 * claim['target']:.1f} %",
            claim["status"],
        ]
        for claim in claims
    ]


def brightness(frame, name):
    """Return how bright the colours of the page are, from 0 to 1."""
    colour = frame.evaluate(f"getComputedStyle(document.body).{name}")
    return sum(map(float, re.findall(r"\d+", colour)[:3])) / 3 / 255


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_report_opens_from_disk_and_shows_the_certificate(site, browser, scheme):
    _, done, folder = site
    place = report_file(done, folder).as_uri()
    visit = Visit(browser, scheme)
    visit.page.goto(place)
    assert [row[:10] for row in certificate_cells(visit.page)] == stored_cells(done, folder)
    assert visit.requests == [place]
    assert visit.complaints == []
    ink, paper = brightness(visit.page, "color"), brightness(visit.page, "backgroundColor")
    dark, bright = (ink, paper) if scheme == "light" else (paper, ink)
    assert dark < 0.3
    assert bright > 0.7
    drawn = visit.page.locator("figure svg text").first
    assert drawn.evaluate("each => getComputedStyle(each).fill") == visit.page.evaluate(
        "getComputedStyle(document.body).color"
    )
    wide = visit.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
    visit.page.close()


@pytest.mark.parametrize("width", [1300, 1000])
def test_the_table_of_the_certificate_fits_on_the_page(browser, tmp_path, width):
    scores, labels = draw(5, 20_000)
    names = ("W", "N1 transitional sleep", "N2", "N3 slow wave sleep", "REM")
    made = make(names, scores, labels, thresholds(*[0.27] * 5))
    path = tmp_path / "report.html"
    path.write_text(page.render(made, {}), encoding="utf-8")
    shown = browser.new_page(viewport={"width": width, "height": 900})
    shown.goto(path.as_uri())
    hidden = shown.locator("#certificate .wide").evaluate("e => e.scrollWidth - e.clientWidth")
    assert hidden == 0
    shown.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_of_a_monitor_opens_from_disk(browser, tmp_path, drawn, scheme):
    calm = watch(start(("W", "N1 transitional sleep", "N2")), 5, share=0.3)
    monitor = watch(calm, 5, share=0.3, seed=2, wrong=[0.05, 0.5, 0.05], missed=0.3)
    seen = monitoring.Seen(monitor=monitor, model_uri="models:/sleep/3", source="nights.csv")
    path = tmp_path / "monitor.html"
    with drawn():
        path.write_text(monitoring.page(seen, [("run", "r")])[0], encoding="utf-8")
    visit = Visit(browser, scheme)
    visit.page.goto(path.as_uri())
    assert visit.page.locator("h1").inner_text().startswith("ALARM since batch")
    assert visit.page.locator("figure svg").count() == 4
    assert visit.requests == [path.as_uri()]
    assert visit.complaints == []
    ink, paper = brightness(visit.page, "color"), brightness(visit.page, "backgroundColor")
    dark, bright = (ink, paper) if scheme == "light" else (paper, ink)
    assert dark < 0.3
    assert bright > 0.7
    assert visit.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    visit.page.close()


def test_the_report_is_shown_in_the_artifact_pane_of_mlflow(site, browser):
    address, done, folder = site
    visit = Visit(browser)
    run = mlflow.MlflowClient(address).get_run(done.run_id).info
    place = f"experiments/{run.experiment_id}/runs/{done.run_id}"
    visit.page.goto(f"{address}/#/{place}/artifacts/report.html")
    pane = visit.page.wait_for_selector("iframe", timeout=SECONDS).content_frame()
    pane.wait_for_selector("#certificate-table", timeout=SECONDS)
    assert [row[:10] for row in certificate_cells(pane)] == stored_cells(done, folder)
    assert pane.locator("h1").inner_text().startswith("Certified: at confidence 95 %")
    # The pane shows a blob that MLflow's own page has made; whatever that page says and asks for
    # itself stays on this server, and is not the report's.
    assert pane.url.startswith(f"blob:{address}/")
    outside = [url for url in visit.requests if not url.startswith((address, f"blob:{address}/"))]
    assert outside == []
    ours = [told for place, told in visit.complaints if not place.startswith(address)]
    assert ours == []
    visit.page.close()


def test_the_run_and_the_version_can_be_read_in_mlflow(site, browser):
    address, done, _ = site
    visit = Visit(browser)
    visit.page.goto(f"{address}/#/models/{done.name}/versions/{done.version}")
    shown = visit.page.get_by_text(re.compile("^Certified: at confidence 95 %")).first
    shown.wait_for(timeout=SECONDS)
    assert visit.page.get_by_text(f"run {done.run_id}: its artifact report.html").count()
    visit.page.close()
