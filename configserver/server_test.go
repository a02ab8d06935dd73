package configserver_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
)

func TestServer_Restart_SameDir_KeepsDocuments(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made by the server")
	for run := range 3 {
		s := assert.Value(configserver.Start(t.Context(), configserver.Config{Dir: dir}))(t)
		assert.Equal(t, s.Dir(), dir, "Dir() = %q, want %q")
		client := connect(t, s.URI())
		locks := client.Database("config").Collection("locks")
		if n, err := locks.CountDocuments(t.Context(), bson.D{}); err != nil || n != int64(run) {
			t.Errorf("run %d finds %d documents, %v", run, n, err)
		}
		assert.NoErr(t, assert.Err(locks.InsertOne(t.Context(), d("_id", run))))
		assert.Must(t, s.Close(t.Context()))
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder is %v, %v, want mode 0700", info.Mode(), err)
	}
}

func TestServer_Start_DirInUse_Refused(t *testing.T) {
	t.Parallel()
	first := start(t, configserver.Config{Dir: t.TempDir()})
	_, err := configserver.Start(t.Context(), configserver.Config{Dir: first.Dir()})
	assert.MustBe(t, err, configserver.ErrDirInUse)
	assert.Must(t, first.Close(t.Context()))
	start(t, configserver.Config{Dir: first.Dir()})
}

// The path of a Unix socket has about a hundred bytes. A longer TMPDIR does not prevent a start.
func TestServer_Start_LongTMPDIR_Works(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("a", 100))
	assert.Must(t, os.Mkdir(long, 0o700))
	t.Setenv("TMPDIR", long)
	s := start(t, configserver.Config{})
	assert.NoErr(t, connect(t, s.URI()).Ping(t.Context(), nil))
}

func TestServer_Start_BadConfig_Refused(t *testing.T) {
	t.Parallel()
	taken := start(t, configserver.Config{Addr: "localhost:0"})
	for _, cfg := range []configserver.Config{
		{Addr: "0.0.0.0:0"}, {Addr: ":0"}, {Addr: "[::]:0"}, {Addr: "192.0.2.1:0"},
		{Addr: "example.com:0"}, {Addr: "127.0.0.1"}, {Addr: "nonsense"}, {Addr: taken.Addr()},
		{Dir: filepath.Join(t.TempDir(), "100%")}, // FerretDB cannot open it
	} {
		s, err := configserver.Start(t.Context(), cfg)
		if err == nil {
			t.Fatal(cfg, s.Addr(), s.Close(t.Context()))
		}
		host, _, malformed := net.SplitHostPort(cfg.Addr)
		if malformed == nil && !net.ParseIP(host).IsLoopback() &&
			!errors.Is(err, configserver.ErrNotLoopback) {
			t.Errorf("%s: got %v, want ErrNotLoopback", cfg.Addr, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := configserver.Start(ended, configserver.Config{}); err == nil {
		t.Fatal(s.Addr(), s.Close(t.Context()))
	}
}

func TestServer_Close_ConnectedClients_EndsThem(t *testing.T) {
	t.Parallel()
	s := start(t, configserver.Config{})
	clients := make([]*mongo.Client, 3)
	for i := range clients {
		clients[i] = connect(t, s.URI())
		assert.Must(t, clients[i].Ping(t.Context(), nil))
	}
	idle := assert.Value(net.Dial("tcp", s.Addr()))(t)
	defer idle.Close()

	var closers sync.WaitGroup
	for range 4 {
		closers.Go(func() { assert.NoErr(t, s.Close(t.Context())) })
	}
	closers.Wait()
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("the idle connection is still open")
	}
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		conn.Close()
		t.Error("the closed server still accepts connections")
	}
	assert.Is(t, assert.Err(os.Stat(s.Dir())), os.ErrNotExist)
}

func TestServer_Log_IsQuiet(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // read only after Close
	logger := zerolog.New(&log).Level(zerolog.InfoLevel)
	s := start(t, configserver.Config{Logger: logger})
	locks := connect(t, s.URI()).Database("config").Collection("locks")
	for range 2 { // the second insert fails, which is not logged
		_, err := locks.InsertOne(t.Context(), byID("balancer"))
		if err != nil && !mongo.IsDuplicateKeyError(err) {
			t.Fatal(err)
		}
	}
	assert.Must(t, s.Close(t.Context()))
	if log.Len() > 0 {
		t.Errorf("logged:\n%s", log.String())
	}
}
