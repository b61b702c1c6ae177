"""The fixtures, and what a test asserts, as a stranger's tests use them: by real pytest, in a folder without a conftest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.stranger import installed, outcomes, run_pytest, write_page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("stranger") / "site")


def test_the_tests_of_the_page_pass_without_a_conftest(site: Path, tmp_path: Path) -> None:
    write_page(tmp_path, with_spark=False)
    done = run_pytest(tmp_path, site)
    assert (done.returncode, outcomes(done)) == (0, {"passed": 2}), done.stdout + done.stderr


def test_a_run_of_pytest_that_uses_no_fixture_loads_nothing_of_a_tracker(
    site: Path, tmp_path: Path
) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_nothing_is_loaded(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('lowmark')\n"
        "    assert not {'tracker', 'grpc', 'numpy', 'pydantic'} & sys.modules.keys()\n"
    )
    done = run_pytest(tmp_path, site)
    assert (done.returncode, outcomes(done)) == (0, {"passed": 1}), done.stdout + done.stderr


def test_who_has_a_tracker_module_of_their_own_can_still_run_pytest(
    site: Path, tmp_path: Path
) -> None:
    (tmp_path / "tracker.py").write_text("MINE = True\n")
    (tmp_path / "test_mine.py").write_text(
        "import tracker\ndef test_it_is_mine():\n    assert tracker.MINE\n"
    )
    done = run_pytest(tmp_path, site)
    assert (done.returncode, outcomes(done)["passed"]) == (0, 1), done.stdout + done.stderr
    assert "rename what is yours" in done.stdout


def test_each_test_has_a_tracker_of_its_own(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_alone.py").write_text(
        "import pytest\n"
        "from lowmark import PipelineSpec\n"
        "@pytest.mark.parametrize('turn', [1, 2])\n"
        "def test_the_name_is_free(lowmark_tracker, turn):\n"
        "    with lowmark_tracker.admin() as admin:\n"
        "        assert admin.register(PipelineSpec('p', ('s',), front_count=turn))[1]\n"
    )
    done = run_pytest(tmp_path, site)
    assert (done.returncode, outcomes(done)) == (0, {"passed": 2}), done.stdout + done.stderr
