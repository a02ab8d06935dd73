package catalogtest

import (
	"context"
	"slices"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// streamTimeout limits the wait for grants. A server needs far less.
const streamTimeout = 20 * time.Second

// grantStream opens a stream of grants. If the store has no streams, grantStream skips the rest of
// the case.
func (b *bench) grantStream(process string) catalog.GrantStream {
	b.Helper()
	s := assert.Value(b.Catalog.Hello(b.ctx))(b)
	n, err := b.Catalog.GrantStream(b.ctx, process)
	if !s.ChangeStreams {
		b.wantErr(err, catalog.ErrNoGrantStream)
		b.SkipNow()
	}
	assert.Must(b, err, "grant stream")
	b.Cleanup(func() { n.Close(context.WithoutCancel(b.ctx)) })
	return n
}

func (b *bench) wantStream(n catalog.GrantStream, process string, want ...catalog.Grant) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, streamTimeout)
	defer cancel()
	left := slices.Clone(want)
	for len(left) > 0 {
		grants, err := n.Next(ctx)
		if err != nil || len(grants) == 0 {
			b.Fatalf("next: %+v, %v, still want %+v", grants, err, left)
		}
		for _, a := range grants {
			if a.Process != process || !slices.Contains(want, a) {
				b.Errorf("grant\nwant one of %+v\ngot  %+v", want, a)
			}
			left = slices.DeleteFunc(left, func(w catalog.Grant) bool { return w == a })
		}
	}
}

var grantStreamCases = []testCase{
	{"LeaveEvictAndGrantNext_AreReturned", func(b *bench) {
		g := b.queued("balancer", 4)
		for i := range g {
			n := b.grantStream(process(i))
			fence := planted + int64(i) + 1
			switch i {
			case 1:
				b.leave(g[0].Session, grant(g[1], fence))
				b.wantStream(n, process(1), grant(g[1], fence))
			case 2:
				assert.Value(On(b.Catalog).Evict(b.ctx, dead(g[1]), "silent"))(b)
				want := grant(g[2], fence)
				want.Evidence = "silent"
				b.wantStream(n, process(2), want)
			case 3:
				b.rewrite("balancer", field("state", int32(0)))
				assert.Value(On(b.Catalog).GrantNext(b.ctx, "balancer"))(b)
				b.wantStream(n, process(3), grant(g[3], fence))
			}
		}
	}},
	{"SeveralGrantsInOneWrite_AreReturned", func(b *bench) {
		g := b.requests("balancer", 5)
		for i := range g[1:] {
			g[i+1].Mode, g[i+1].Process = catalog.Shared, process(i%2)
		}
		for _, one := range g {
			b.enter(one)
		}
		first := b.grantStream(process(0))
		second := b.grantStream(process(1))
		f := planted + 1
		b.leave(g[0].Session,
			grant(g[1], f+1), grant(g[2], f+2), grant(g[3], f+3), grant(g[4], f+4))
		b.wantStream(first, process(0), grant(g[1], f+1), grant(g[3], f+3))
		b.wantStream(second, process(1), grant(g[2], f+2), grant(g[4], f+4))
	}},
	// The first grant is for the process abc. Some of the other process ids match abc if a store takes
	// them for patterns or suffixes. Their streams must not return the first grant.
	{"OtherProcesses_AreNotReturned", func(b *bench) {
		for i, id := range []string{
			"bc", "a.c", "a*", "(a", "[b]", "a|b", "^a$", `a\d`, "a{2}", "$a", "a b", "ä🔒", "a'\"b", "a+",
			".*",
		} {
			name := label(i)
			g := b.requests(name, 3)
			g[1].Process, g[2].Process = "abc", id
			for _, one := range g {
				b.enter(one)
			}
			n := b.grantStream(id)
			b.leave(g[0].Session, grant(g[1], planted+2))
			b.leave(g[1].Session, grant(g[2], planted+3))
			b.wantStream(n, id, grant(g[2], planted+3))
			n.Close(b.ctx)
		}
	}},
	{"EndedContext_IsTheError", func(b *bench) {
		ctx, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
		defer cancel()
		assert.Is(b, assert.Err(b.grantStream(alice).Next(ctx)), context.DeadlineExceeded)
		ctx, cancel = context.WithCancel(b.ctx)
		cancel()
		assert.Is(b, assert.Err(b.grantStream(alice).Next(ctx)), context.Canceled) // an error ends a stream
	}},
	{"AfterClose_NothingHangs", func(b *bench) {
		g := b.queued("balancer", 2)
		n := b.grantStream(process(1))
		n.Close(b.ctx)
		n.Close(b.ctx)
		ctx, cancel := context.WithTimeout(b.ctx, streamTimeout)
		defer cancel()
		if grants, err := n.Next(ctx); err == nil || ctx.Err() != nil {
			b.Errorf("want an error at once, got %+v, %v", grants, err)
		}
		b.leave(g[0].Session, grant(g[1], planted+2))
	}},
}
