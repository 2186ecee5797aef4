module github.com/engy-ai/engy/services/edge

go 1.26.0

require github.com/engy-ai/engy v0.0.0

replace github.com/engy-ai/engy => ../..
