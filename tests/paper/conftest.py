import pytest

from coefdyn.results.files import TableFolder
from tests.paper.worlds import fill, right, wrong


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TableFolder]:
    """Tables of every experiment, once: tests read them and write elsewhere."""
    place = tmp_path_factory.mktemp("worlds")
    return {
        "right": fill(place / "right", right),
        "wrong": fill(place / "wrong", wrong),
        "thin": fill(place / "thin", right, keep=lambda run: run.values["seed"] == 0
                     and run.values["optimizer"]["lr"] == 1e-3),
    }  # fmt: skip
