"""The report: in a real browser, on paper, with names that are no markup."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.measure.test_records import LOAD, record

from trtbuild.cli import run
from trtbuild.measure.records.store import Store
from trtbuild.measure.report.page import report_page

PLAN = {
    "gpu": {"name": "L4"}, "free_bytes": 3 << 30,
    "ledger": [{"item": "m weights", "bytes": 5 << 30}, {"item": "m KV pool", "bytes": 8 << 30}],
}  # fmt: skip
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium here: apt-get install chromium")


def level(users, seed):
    load = {
        "flows": [{**LOAD["flows"][0], "shape": {"kind": "closed", "users": users}}],
        "slo": {"ttft_s": 0.3},
    }
    ttfts = np.random.default_rng(seed).gamma(9, 0.02, 300) * (1 + users / 8)
    made = record(ttfts, load=load, label="<b>$bold$ & loud</b>", series="s", begun_unix_s=1.7e9 + users)
    gauges = (("generation", users), ("waiting", 2), ("kv_used", 40), ("kv_max", 128), ("cpu_cores", 1.5))
    made.timeline = [(t_s, "m_engine", name, value) for t_s in range(0, 100, 5) for name, value in gauges]
    made.deployment = {"models": ["m"], "address": "here", "plan": PLAN}
    made.generator = {
        "cpu_share": 0.2,
        "send_error_max_s": 0.001,
        "sent": 55,
        "sent_late": 0,
        "loop_lag_max_s": 0.01,
    }
    return made


@pytest.fixture(scope="module")
def page():
    return report_page([level(users, users) for users in (1, 4, 8)], title="A <title>")


@pytest.mark.filterwarnings("error")
def test_many_models_leave_the_timeline_its_width():
    one = level(4, 4)
    names = [f"a model with a long name {number}" for number in range(8)] + ["m" * 300]
    one.timeline += [(t_s, name, "cpu_cores", 1.0) for name in names for t_s in range(0, 100, 5)]
    page = report_page([one], title="t")
    svg = page[page.index("timeline-") :]
    frames = re.findall(r'id="[^"]*-patch_\d+">\s*<path d="M ([\d.]+) [\d.]+ \s*L ([\d.]+) ', svg)
    # The figure is 7.2 inches, 518 points wide; the axes take most of it.
    widths = [float(right) - float(left) for left, right in frames]
    assert len([width for width in widths if width > 0.75 * 518]) >= 5, widths


def test_the_page_has_what_was_measured_and_loads_nothing(page):
    assert page.count("<svg") == 3 + 1 + 3 * 2  # load curves, ledger, and two of each run
    for text in ("budget 300 ms", "TTFT against users at once", "m KV pool: 8.00 GiB", "KV used, %"):
        assert text in page
    outside = [url for url in re.findall(r'(?:src|href)="([^"#][^"]*)"', page) if not url.startswith("data:")]
    assert outside == []
    assert "<script" not in page
    assert "<b>$bold$" not in page
    assert "&lt;b&gt;$bold$" in page


def test_levels_of_users_are_drawn_beside_a_run_of_another_kind():
    rate = level(1, 9)
    rate.load["flows"][0]["shape"] = {"kind": "poisson", "rate_per_s": 1.0}
    page = report_page([level(1, 1), level(4, 4), rate], title="both kinds")
    assert "TTFT against users at once" in page
    assert [
        text for text in ("1 user at once", "4 users at once", "1 request a second") if text not in page
    ] == []


def test_a_class_has_one_colour_in_every_figure_of_a_run():
    """The order of the load's classes, whichever came first."""
    made = level(4, 4)
    names = ("short", "long")
    made.load["flows"][0]["traffic"] = [{**made.load["flows"][0]["traffic"][0], "name": one} for one in names]
    for number, one in enumerate(made.requests):
        one.traffic = names[(number + 1) % 2]
    page = report_page([made], title="two classes")
    legends = [part for part in page.split("<svg") if ">short<" in part and ">long<" in part]
    assert len(legends) == 2  # distributions and timeline
    assert all(part.index(">short<") < part.index(">long<") for part in legends)


def test_every_figure_is_well_formed_and_no_id_is_taken_twice(page):
    figures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    for svg in figures:
        ElementTree.fromstring(svg)
    ids = [id_ for svg in figures for id_ in set(re.findall(r'\bid="([^"]+)"', svg))]
    assert len(ids) == len(set(ids))


def browse(path: Path, *args: str) -> str:
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--enable-logging=stderr",
        f"--user-data-dir={path.parent / 'profile'}", "--virtual-time-budget=2000", *args, path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    return done.stdout


@in_browser
@pytest.mark.slow
def test_a_browser_shows_it_and_it_prints(page, tmp_path):
    from PIL import Image

    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    dom = browse(path, "--dump-dom")
    assert dom.count("<svg") == 10
    assert "TTFT P95" in dom
    browse(path, f"--screenshot={tmp_path / 'shot.png'}", "--window-size=1100,3000")
    shot = np.asarray(Image.open(tmp_path / "shot.png").convert("RGB")).reshape(-1, 3)
    assert shot.shape[0] == 1100 * 3000
    blue, orange = (
        (np.abs(shot.astype(int) - colour) < 12).all(axis=1).sum() for colour in ((0, 114, 178), (213, 94, 0))
    )
    assert blue > 500  # the curves and the ledger are drawn
    assert orange > 100
    browse(path, f"--print-to-pdf={tmp_path / 'report.pdf'}", "--no-pdf-header-footer")
    pdf = (tmp_path / "report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 4  # one a run and more


@in_browser
@pytest.mark.slow
def test_a_narrow_screen_scrolls_tables_and_breaks_no_word(page, tmp_path):
    script = """
      const broken = [];
      for (const cell of document.querySelectorAll('.scroll td')) {
        const text = cell.firstChild;
        for (const word of (text ? text.data : '').matchAll(/[a-z0-9]+/gi)) {
          const range = document.createRange();
          range.setStart(text, word.index); range.setEnd(text, word.index + word[0].length);
          if (range.getClientRects().length > 1) broken.push(word[0]);
        }
      }
      document.title = 'broken: ' + broken.length + ' of ' + window.innerWidth;
    """
    path = tmp_path / "report.html"
    page = re.sub(r"<meta http-equiv=[^>]*>", "", page)
    path.write_text(page.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    dom = browse(path, "--dump-dom", "--window-size=400,900")
    assert re.search(r"<title>broken: 0 of (4\d\d|500)</title>", dom)


def test_the_curve_of_levels_leads_over_the_mean_of_repeated_runs():
    pages = [
        report_page([level(users, seed) for seed, users in enumerate(loads)], title="t")
        for loads in ((1, 4, 8, 8), (1, 4, 8))
    ]
    curves = [
        page.partition("<h2>Throughput against latency</h2>")[2].partition("</figure>")[0] for page in pages
    ]
    repeated, once = (curve.count(">8</text>") for curve in curves)  # one is a tick
    assert repeated == once == 2


def test_the_title_of_several_runs_says_what_they_are(tmp_path, capsys):
    store = Store(tmp_path / "runs.sqlite")
    for users in (1, 4):
        made = level(users, users)
        made.label, made.kind = str(users), "sweep"
        store.put(made)
    assert run(("report", "--runs", str(store.path), "-o", str(tmp_path / "r.html"))) == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"<h1>Sweep of m: 2 runs, the last {made.run_id}</h1>" in page
    assert "closed, users 4" in page


@pytest.mark.slow
def test_the_command_takes_the_whole_series(tmp_path, capsys):
    store = Store(tmp_path / "runs.sqlite")
    for users in (1, 4):
        store.put(level(users, users))
    assert run(("report", "--runs", str(store.path), "-o", str(tmp_path / "out" / "r.html"))) == 0
    assert "2 runs" in capsys.readouterr().out
    assert "users at once" in (tmp_path / "out" / "r.html").read_text(encoding="utf-8")


def test_a_run_without_anything_still_has_a_page():
    empty = record([])
    empty.state, empty.why = "died", "its process ended without finishing it"
    page = report_page([empty], title="empty")
    assert "its process ended" in page
