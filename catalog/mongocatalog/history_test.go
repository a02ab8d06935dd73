package mongocatalog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

// An index with another age, which an operator or another configuration made, is left alone, and he
// is told.
func TestCatalog_PrepareHistory_AnotherAge_StaysWithAWarning(t *testing.T) {
	t.Parallel()
	server := serve(t, func(command bson.Raw) bson.D {
		if command.Lookup("indexes", "0", "expireAfterSeconds").Type != 0 {
			return bson.D{e("ok", 0.0), e("code", int32(85)), e("errmsg", "another")}
		}
		return bson.D{e("ok", 1.0)}
	})
	store := assert.Value(mongocatalog.New(server.client(t), mongocatalog.Options{}))(t)
	warnings, err := store.PrepareHistory(t.Context(), 48*time.Hour)
	assert.NoErr(t, err)
	if !strings.Contains(strings.Join(warnings, "\n"), `"at_1" on config.lockhistory`) {
		t.Errorf("%q", warnings)
	}
	sent := server.sent()
	age, _ := sent[0].Lookup("indexes", "0", "expireAfterSeconds").AsInt64OK()
	if len(sent) != 2 || age != 48*3600 {
		t.Errorf("sent %v", sent)
	}
}

// A batch of which some was written before is written; any other refusal is an error, and one that
// may have been carried out says so.
func TestCatalog_AppendHistory_Outcomes(t *testing.T) {
	t.Parallel()
	refused := func(codes ...int32) bson.E {
		var list bson.A
		for i, code := range codes {
			list = append(list, bson.D{e("index", int32(i)), e("code", code), e("errmsg", "x")})
		}
		return e("writeErrors", list)
	}
	lost := e("writeConcernError", bson.D{e("code", int32(64)), e("errmsg", "timeout")})
	denied, unknown := &catalog.PrivilegeError{}, catalog.ErrUnknownOutcome
	for name, c := range map[string]struct {
		reply bson.D
		want  error
	}{
		"written":                        {bson.D{e("ok", 1.0), e("n", int32(2))}, nil},
		"written before":                 {bson.D{e("ok", 1.0), refused(11000, 11000)}, nil},
		"written before, and not safely": {bson.D{e("ok", 1.0), refused(11000), lost}, unknown},
		"not safely":                     {bson.D{e("ok", 1.0), lost}, unknown},
		"no privilege":                   {failure(13, "x")(nil), denied},
		"no connection":                  {nil, unknown},
		"refused in part":                {bson.D{e("ok", 1.0), refused(11000, 121)}, errAny},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(bson.Raw) bson.D { return c.reply })
			var within time.Duration // the usual one
			if c.reply == nil {
				within = time.Second
			}
			err := connected(t, server, within).AppendHistory(t.Context(), []catalog.HistoryEntry{
				{ID: bson.NewObjectID(), At: time.UnixMilli(5), Kind: "lost"},
				{ID: bson.NewObjectID(), At: time.UnixMilli(6), Kind: "lost"},
			})
			var privilege *catalog.PrivilegeError
			switch c.want {
			case denied:
				if !errors.As(err, &privilege) || privilege.Namespace != "config.lockhistory" {
					t.Errorf("%v", err)
				}
			case errAny:
				if err == nil {
					t.Error("no error")
				}
			default:
				if !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
			}
			sent := server.sent()[0]
			if level, _ := sent.Lookup("writeConcern", "w").StringValueOK(); level != "majority" {
				t.Errorf("sent %v", sent)
			}
		})
	}
}

var errAny = errors.New("any")
