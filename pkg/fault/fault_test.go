package fault_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/engy-ai/engy/pkg/fault"
)

func TestACodeIsFoundThroughWraps(t *testing.T) {
	t.Parallel()
	inner := fault.Wrap(fault.Timeout, "the worker did not answer", io.ErrUnexpectedEOF)
	err := fmt.Errorf("run job 7: %w", fmt.Errorf("read frame: %w", inner))
	require.Same(t, inner, fault.Of(err))
	require.True(t, fault.Is(err, fault.Timeout))
	require.False(t, fault.Is(err, fault.Engine))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestTheOuterCodeWins(t *testing.T) {
	t.Parallel()
	err := fault.Wrap(fault.Busy, "try again", fault.New(fault.Engine, "engine is down"))
	require.True(t, fault.Is(err, fault.Busy))
	require.False(t, fault.Is(err, fault.Engine))
}

func TestAnErrorWithoutACodeIsInternalAndHidesItsCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("password=secret")
	f := fault.Of(cause)
	require.Equal(t, fault.Internal, f.Code)
	require.NotContains(t, f.Message, "secret")
	require.ErrorIs(t, f, cause)
	require.Contains(t, f.Error(), "secret", "the operator sees the cause")
}

func TestNilHasNoCode(t *testing.T) {
	t.Parallel()
	require.Nil(t, fault.Of(nil))
	for _, code := range fault.Codes() {
		require.False(t, fault.Is(nil, code))
	}
}

func TestAtNamesTheFieldAndIsInvalid(t *testing.T) {
	t.Parallel()
	err := fault.At("max_tokens", "must be positive")
	require.Equal(t, &fault.Error{Code: fault.Invalid, Message: "must be positive", Field: "max_tokens"}, err)
	require.Equal(t, "invalid: must be positive", err.Error())
	require.NoError(t, errors.Unwrap(err))
	require.Equal(t, time.Duration(0), err.Retry)
}

// Codecs test that they have a status for every listed code, so a constant
// that is not listed would pass them unseen.
func TestCodesListsEveryConstantOnce(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	require.NoError(t, err)
	var declared []fault.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		typ, ok := spec.Type.(*ast.Ident)
		if !ok || typ.Name != "Code" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		declared = append(declared, fault.Code(text))
		return true
	})
	require.NotEmpty(t, declared)
	require.Equal(t, declared, fault.Codes())
}
