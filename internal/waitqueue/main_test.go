package waitqueue_test

import (
	"testing"

	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }
