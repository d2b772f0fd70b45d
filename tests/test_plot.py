"""Pictures of a user's own runs."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import coefdyn
from coefdyn.config.build import build_task
from coefdyn.config.compose import compose
from coefdyn.errors import ConfigError
from coefdyn.results.load import Run
from tests.runs.runs import folder, run_smoke

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("plots")
    for readout in ("exp", "identity"):
        for seed in range(3):
            run_smoke(place, f"model/readout={readout}", f"seed={seed}", "optimizer.lr=5e-3")
    run_smoke(place, "model/readout=exp", "seed=0", "optimizer.lr=1e-5")
    return place


@pytest.fixture(scope="module")
def runs(results: Path) -> list[Run]:
    return [
        coefdyn.load_run(folder(results, run_smoke(results, f"model/readout={name}", "seed=0",
                                                   "optimizer.lr=5e-3")))
        for name in ("exp", "identity")
    ]  # fmt: skip


def test_coefficients_are_drawn_per_layer_and_head_with_tokens_on_the_axes(runs: list[Run]) -> None:
    tokens = torch.randint(0, 8, (2, 9))
    figure = coefdyn.plot.coefficients(runs[0], tokens, sequence=1)
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 2 * 2  # layers, heads
    for number, (alpha, eta, *_) in enumerate(runs[0].coefficients(tokens[1:])):
        for head in range(2):
            axes = panels[2 * number + head]
            shown = axes.images[0].get_array()
            expected = (alpha / eta[..., None])[0, head].numpy()
            np.testing.assert_allclose(np.tril(shown.filled(0)), np.tril(expected), atol=1e-6)
            assert shown.mask[np.triu_indices(9, 1)].all()
            assert axes.get_title() == f"layer {number + 1}, head {head + 1}"
    words = [label.get_text() for label in panels[-1].get_xticklabels()]
    assert words == [str(int(token)) for token in tokens[1]]
    assert panels[0].images[0].get_clim()[0] == 0.0
    signed = coefdyn.plot.coefficients(runs[1], tokens[0])  # the identity has both signs
    low, high = next(axes for axes in signed.axes if axes.images).images[0].get_clim()
    assert low == -high < 0


def test_curves_are_named_by_what_differs(runs: list[Run]) -> None:
    (axes,) = coefdyn.plot.curves(runs).axes
    for line, run, name in zip(axes.get_lines(), runs, ("readout exp", "readout identity"),
                               strict=False):  # fmt: skip
        assert line.get_label() == name
        rows = run.history[run.history["test/accuracy"].notna()]
        assert list(line.get_ydata()) == list(rows["test/accuracy"])
    (axes,) = coefdyn.plot.curves({"mine": runs[0]}, y="train/loss").axes
    assert [line.get_label() for line in axes.get_lines()] == ["mine"]
    assert axes.get_ylabel() == "train loss"


def test_an_ablation_shows_the_best_rate_of_every_seed(results: Path) -> None:
    frame = coefdyn.load_runs(results)
    figure = coefdyn.plot.ablation(frame, x="readout")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["exp", "identity"]
    (line,) = axes.get_lines()
    best = frame.groupby(["readout", "seed"])["test/accuracy"].max().groupby("readout").mean()
    assert list(line.get_ydata()) == pytest.approx(list(best))
    dots = [c for c in axes.collections if len(c.get_offsets()) > 1]
    assert [len(c.get_offsets()) for c in dots] == [3, 3]
    both = coefdyn.plot.ablation(frame, x="optimizer.lr", hue="readout", panel="task")
    assert [axes.get_title() for axes in both.axes] == ["noisy recall"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, _: coefdyn.plot.ablation(f, x="readuot"), "no column readuot; did you mean re"),
        (lambda f, _: coefdyn.plot.ablation(f, x="readout", y="accuracy"), "did you mean test/acc"),
        (lambda f, _: coefdyn.plot.ablation(f, x="seed"), "every dot is a seed already"),
        (lambda *_: coefdyn.plot.curves([]), "needs one run at least"),
        (lambda _, r: coefdyn.plot.curves(r, y="loss"), "no column loss; did you mean"),
        (lambda _, r: coefdyn.plot.coefficients(r[0], [[[1]]]), r"tokens \(b t\)"),
        (lambda _, r: coefdyn.plot.coefficients(r[0], [[1, 2]], sequence=3), "sequence=3"),
    ],
)
def test_bad_input_gets_one_sentence(
    call: object, message: str, results: Path, runs: list[Run]
) -> None:
    assert callable(call)
    with pytest.raises(ConfigError, match=message) as error:
        call(coefdyn.load_runs(results), runs)
    assert "\n" not in str(error.value)


def test_the_three_lines_of_the_readme_run(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = re.findall(r"```python\n(runs = coefdyn\.load_runs.*?)```", README.read_text(), re.S)
    assert len(block.strip().splitlines()) == 3
    (tmp_path / "results").symlink_to(results)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"coefdyn": coefdyn}
    exec(block, names)  # our own words
    assert isinstance(names["figure"], Figure)
    assert (tmp_path / "mine.png").stat().st_size > 1000


def test_examples_of_tasks_show_what_is_read_and_what_is_to_be_written() -> None:
    task = build_task(compose(["task=noisy_recall", "scale=smoke"]))
    figure = coefdyn.plot.examples({"noisy_recall": task}, seed=1)
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "noisy recall"
    drawn = task.generate("test", 1)
    shown = {text.get_position(): text.get_text() for text in axes.texts}
    for step, (read, write) in enumerate(zip(drawn.inputs[0], drawn.targets[0], strict=True)):
        assert shown[step, 0] == str(read)
        assert shown[step, 1] == ("·" if write < 0 else str(write))
