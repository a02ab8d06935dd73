package claim

import (
	"testing"

	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }
