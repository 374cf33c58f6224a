"""`ray-snapshot grafana`: the dashboard printed, put into a folder, and sent to a Grafana that may refuse it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from posted import address

from ray_snapshot.cli import main
from ray_snapshot.commands import grafana


def test_the_dashboard_and_the_rules_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grafana"]) == 0
    assert json.loads(capsys.readouterr().out)["uid"] == "ray-snapshot"
    assert main(["grafana", "--alerts"]) == 0
    assert "alert: RaySnapshotAlarm" in capsys.readouterr().out


def test_it_is_put_where_rays_grafana_looks_or_where_one_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grafana, "RAYS_OWN", tmp_path / "rays")
    assert main(["grafana", "--install"]) == 2
    told = capsys.readouterr().err
    assert (f"there is no folder {tmp_path / 'rays'} " in told, told.count("\n")) == (True, 1)
    (tmp_path / "rays").mkdir()
    for options, folder in ((["--install"], "rays"), (["--install", "--to", str(tmp_path)], ".")):
        assert main(["grafana", *options]) == 0
        path = tmp_path / folder / "ray_snapshot_dashboard.json"
        assert str(path) in capsys.readouterr().out
        assert json.loads(path.read_text())["title"] == "ray-snapshot"


def test_a_grafana_gets_it_with_the_token(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", "a-token")
    with address(answer={"url": "/d/ray-snapshot/ray-snapshot"}) as posted:
        base = posted.address.removesuffix("/hook/a-secret")
        assert main(["grafana", "--install", "--to", f"{base}/"]) == 0
    assert capsys.readouterr().out == f"ray-snapshot: the dashboard is at {base}/d/ray-snapshot/ray-snapshot\n"
    assert posted.paths == ["/api/dashboards/db"]
    assert posted.headers[0]["authorization"] == "Bearer a-token"
    (body,) = posted.bodies
    assert (body["overwrite"], body["dashboard"]["uid"], body["dashboard"]["id"]) == (True, "ray-snapshot", None)


def test_a_grafana_that_refuses_or_is_not_there_is_told_in_one_line_without_the_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with address(401, answer={"message": "Unauthorized"}) as posted:
        base = posted.address.removesuffix("/hook/a-secret").replace("http://", "http://me:a-password@")
        assert main(["grafana", "--install", "--to", base]) == 2
    refused = capsys.readouterr().err
    assert "answered 401 Unauthorized; set GRAFANA_TOKEN to a token that may edit dashboards" in refused
    assert main(["grafana", "--install", "--to", base]) == 2
    gone = capsys.readouterr().err
    assert "no Grafana can be asked at 127.0.0.1:" in gone
    assert ("a-password" in refused + gone, refused.count("\n"), gone.count("\n")) == (False, 1, 1)


@pytest.mark.parametrize("options", [["--to", "x"], ["--alerts", "--install"], ["--install", "--to", "no-such-folder"]])
def test_what_is_asked_wrongly_is_told(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grafana", *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1
