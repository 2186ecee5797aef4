module github.com/engy-ai/engy/services/engy

go 1.26.0

require github.com/engy-ai/engy v0.0.0

replace github.com/engy-ai/engy => ../..

require (
	github.com/engy-ai/engy/services/billing v0.0.0
	github.com/engy-ai/engy/services/edge v0.0.0
	github.com/engy-ai/engy/services/sim v0.0.0
	github.com/engy-ai/engy/services/worker v0.0.0
)

require (
	github.com/coder/websocket v1.8.15 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/openai/openai-go/v3 v3.99.0 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
)

replace (
	github.com/engy-ai/engy/services/billing => ../billing
	github.com/engy-ai/engy/services/edge => ../edge
	github.com/engy-ai/engy/services/sim => ../sim
	github.com/engy-ai/engy/services/worker => ../worker
)
