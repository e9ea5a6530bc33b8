"""How the doctor judges the manager's request rate from its metrics."""

from __future__ import annotations

from datetime import UTC, datetime

from bedplate.cli.doctor.rates import check_rates

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
STARTED = f"process_start_time_seconds {NOW.timestamp() - 600}\n"


def metrics(code: str) -> str:
    return (
        "# TYPE ccm_cloud_api_requests_total counter\n"
        'ccm_cloud_api_requests_total{provider="oxide",operation="instance_view",code="200"} 900\n'
        f'ccm_cloud_api_requests_total{{provider="oxide",operation="instance_view",code="{code}"}} 100\n' + STARTED
    )


def test_calls_are_shown_per_minute_since_the_manager_began() -> None:
    (finding,) = check_rates(metrics("500"), NOW)
    assert finding.level == "ok" and "100 calls a minute" in finding.message


def test_refusals_for_too_many_calls_are_a_problem_with_the_flags_that_help() -> None:
    (finding,) = check_rates(metrics("429"), NOW)
    assert finding.level == "problem" and "refused 100 of 1000" in finding.message
    assert "--cloud-api-qps" in finding.fix


def test_unreadable_metrics_are_unknown_and_unasked_ones_a_note() -> None:
    assert [finding.level for finding in check_rates(ConnectionError("refused"), NOW)] == ["unknown"]
    assert [finding.level for finding in check_rates(None, NOW)] == ["note"]
    assert [finding.level for finding in check_rates("<html>", NOW)] == ["unknown"]


def test_a_manager_without_metrics_is_not_asked_for_their_address() -> None:
    (finding,) = check_rates(None, NOW, is_served=False)
    assert (finding.level, finding.fix) == ("note", "")
    assert "--secure-port=0" in finding.message
