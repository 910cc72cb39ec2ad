package testenv_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestAppSQLIsSplitIntoStatements(t *testing.T) {
	statements := testenv.AppSQL()
	require.NotEmpty(t, statements)
	for _, statement := range statements {
		require.True(t, strings.HasPrefix(statement, "CREATE TABLE "), statement)
		require.NotContains(t, statement, ";")
	}
}
