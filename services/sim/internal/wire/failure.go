package wire

import (
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
)

// Failure is an answer that says no. Its message is for the caller.
type Failure struct {
	Status  int
	Message string
	// Param is the member of the request at fault, empty when none is.
	Param string
}

// Error gives the message.
func (f *Failure) Error() string { return f.Message }

// Wrong is a Failure for a request that breaks a rule.
func Wrong(param, format string, args ...any) *Failure {
	return &Failure{Status: http.StatusBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// Body gives the failure in the OpenAI form, with all four keys.
func (f *Failure) Body() []byte {
	type object struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}
	o := object{Message: f.Message, Type: f.kind(), Code: f.Status}
	if f.Param != "" {
		o.Param = &f.Param
	}
	body, err := json.Marshal(map[string]object{"error": o})
	if err != nil {
		// Only text that is not UTF-8 can bring us here.
		return []byte(`{"error":{"message":"error text is not UTF-8","type":"InternalServerError","param":null,"code":500}}`)
	}
	return body
}

func (f *Failure) kind() string {
	switch f.Status {
	case http.StatusNotFound:
		return "NotFoundError"
	case http.StatusTooManyRequests:
		return "RateLimitError"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailableError"
	}
	if f.Status >= 500 {
		return "InternalServerError"
	}
	return "BadRequestError"
}
