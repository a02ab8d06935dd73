package configserver_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
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

func TestServer_TwoAtOnce_KeepApart(t *testing.T) {
	t.Parallel()
	first := start(t, configserver.Config{})
	second := start(t, configserver.Config{})
	if first.Addr() == second.Addr() || first.Dir() == second.Dir() {
		t.Fatalf("both at %s in %s", first.Addr(), first.Dir())
	}
	for _, s := range []*configserver.Server{first, second} {
		locks := connect(t, s.URI()).Database("config").Collection("locks")
		assert.NoErr(t, assert.Err(locks.InsertOne(t.Context(), byID("balancer"))))
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

func TestServer_Start_BadConfig_Refused(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{
		"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1", "nonsense",
	} {
		t.Run(addr, func(t *testing.T) {
			t.Parallel()
			s, err := configserver.Start(t.Context(), configserver.Config{Addr: addr})
			if err == nil {
				t.Fatal(s.Addr(), s.Close(t.Context()))
			}
			_, _, malformed := net.SplitHostPort(addr)
			if malformed == nil && !errors.Is(err, configserver.ErrNotLoopback) {
				t.Errorf("got %v, want ErrNotLoopback", err)
			}
		})
	}
	t.Run("folder that FerretDB cannot open", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "100%")
		if s, err := configserver.Start(t.Context(), configserver.Config{Dir: dir}); err == nil {
			t.Fatal(s.Addr(), s.Close(t.Context()))
		}
	})
	t.Run("port in use", func(t *testing.T) {
		t.Parallel()
		taken := start(t, configserver.Config{Addr: "localhost:0"})
		s, err := configserver.Start(t.Context(), configserver.Config{Addr: taken.Addr()})
		if err == nil {
			t.Fatal(s.Addr(), s.Close(t.Context()))
		}
	})
	t.Run("context that has ended", func(t *testing.T) {
		t.Parallel()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if s, err := configserver.Start(ended, configserver.Config{}); err == nil {
			t.Fatal(s.Addr(), s.Close(t.Context()))
		}
	})
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
		t.Error("somebody still listens")
	}
	assert.Is(t, assert.Err(os.Stat(s.Dir())), os.ErrNotExist)
}

func TestServer_BuildInfo_TellsTheFront(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, configserver.Config{}).URI())
	for _, command := range []string{"buildInfo", "buildinfo"} {
		var info bson.M
		err := client.Database("admin").RunCommand(t.Context(), d(command, 1)).Decode(&info)
		assert.Must(t, err)
		if info["mongodlmFront"] != true || info["ferretdbVersion"] == nil || info["ok"] != 1.0 {
			t.Errorf("%s: %v", command, info)
		}
	}
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
