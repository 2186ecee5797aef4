package responses_test

import (
	"testing"

	"github.com/engy-ai/engy/services/edge/internal/codec/codectest"
	"github.com/engy-ai/engy/services/edge/internal/codec/responses"
)

const route = "POST /v1/responses"

func TestGoldenCases(t *testing.T) {
	t.Parallel()
	codectest.Run(t, responses.Codec{}, route, "testdata")
}
