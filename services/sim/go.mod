module github.com/engy-ai/engy/services/sim

go 1.26.0

require (
	github.com/caarlos0/env/v11 v11.4.2
	github.com/go-json-experiment/json v1.27.2
)

replace github.com/engy-ai/engy => ../..
