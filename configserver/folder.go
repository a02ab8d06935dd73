package configserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite" // FerretDB's own driver, registered as "sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrDirInUse is returned by [Start] if another server uses Config.Dir. The other server may be in
// this process or in another one.
var ErrDirInUse = errors.New("configserver: folder is in use by another config server")

// lockFile is the name of a SQLite file. The server that uses the folder holds the exclusive lock
// of this file. FerretDB ignores the file, because its name does not end in .sqlite.
const lockFile = "configserver.lock"

type folder struct {
	path      string
	temporary bool
	lock      *sql.DB // nil for a temporary folder, which needs no lock
}

func openFolder(ctx context.Context, path string) (*folder, error) {
	if path == "" {
		temporary, err := os.MkdirTemp("", "mongodlm-data-")
		if err != nil {
			return nil, fmt.Errorf("configserver: temporary folder: %w", err)
		}
		return &folder{path: temporary, temporary: true}, nil
	}
	if strings.ContainsAny(path, "?#%") {
		return nil, fmt.Errorf(
			"configserver: folder %q: FerretDB cannot open a path with ?, # or %% in it", path)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("configserver: folder %q: %w", path, err)
	}
	if err = os.MkdirAll(absolute, 0o700); err != nil {
		return nil, fmt.Errorf("configserver: folder: %w", err)
	}
	lock, err := lockFolder(ctx, absolute)
	if err != nil {
		return nil, err
	}
	return &folder{path: absolute, lock: lock}, nil
}

// lockFolder acquires the exclusive lock of the SQLite file in dir. On every operating system the
// lock excludes other servers of this process and of other processes. The lock ends with the
// process, even after a crash.
func lockFolder(ctx context.Context, dir string) (*sql.DB, error) {
	file := url.URL{
		Scheme: "file", OmitHost: true, Path: filepath.ToSlash(filepath.Join(dir, lockFile)),
		RawQuery: "_pragma=locking_mode(exclusive)",
	}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		return nil, fmt.Errorf("configserver: lock folder %q: %w", dir, err)
	}
	db.SetMaxOpenConns(1) // this connection owns the lock
	if _, err = db.ExecContext(ctx, "PRAGMA user_version = 1"); err == nil {
		return db, nil
	}
	var failed *sqlite.Error
	if errors.As(err, &failed) && failed.Code()&0xff == sqlite3.SQLITE_BUSY {
		err = ErrDirInUse
	}
	return nil, errors.Join(fmt.Errorf("configserver: lock folder %q: %w", dir, err), db.Close())
}

func (f *folder) close() error {
	if f.temporary {
		return os.RemoveAll(f.path)
	}
	return f.lock.Close()
}
