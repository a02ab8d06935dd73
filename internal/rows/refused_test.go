package rows

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/internal/test/assert"
)

// A transient error of the server is not a refusal. It does not end Run, and it does not set rows
// aside.
func TestRefuses_WhatPasses_IsNoRefusal(t *testing.T) {
	t.Parallel()
	for want, list := range map[bool][]mongo.CommandError{
		true: {{Code: 2}, {Code: 61}, {Code: 121}, {Code: 10334}, {Code: codeDuplicate}, {Code: 51091}},
		false: {{Code: 211}, {Code: 450}, {Code: 462}, {Code: 463}, {Code: 365}, {Code: 371}, {Code: 267},
			{Code: 91}, {Code: 13436},
			{Code: 2, Labels: []string{"TransientTransactionError"}},
			{Code: 2, Labels: []string{"RetryableError"}}},
	} {
		for _, err := range list {
			assert.Equal(t, refuses(err), want, err.Error()+": %v, want %v")
		}
	}
}
