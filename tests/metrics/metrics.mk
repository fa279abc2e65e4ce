# The metrics of a running daemon, the alerts and the dashboard, as Prometheus itself sees them; included by the Makefile
# at the top.

.PHONY: check-metrics

## check-metrics: promtool on the metrics of a running daemon, on the alerts and on every query of the dashboard
check-metrics:
	cargo build --locked --bin shelly-executord
	@tests/metrics/check target/debug/shelly-executord
