import pytest

from coefdyn.results.files import TableFolder
from tests.paper.worlds import fill, noisy, right, wrong


class Worlds(dict[str, TableFolder]):
    """Tables of every experiment, a world made when it is first asked for."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        super().__init__()
        self.place = factory.mktemp("worlds")

    def __missing__(self, name: str) -> TableFolder:
        if name == "thin":
            self[name] = fill(self.place / name, right, keep=lambda run: run.values["seed"] < 2)
        else:
            self[name] = fill(
                self.place / name, {"right": right, "wrong": wrong, "noisy": noisy}[name]
            )
        return self[name]


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TableFolder]:
    """Tests read them and write elsewhere."""
    return Worlds(tmp_path_factory)
