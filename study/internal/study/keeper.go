package study

import (
	"fmt"
	"slices"
	"time"
)

// A keeper is a server that keeps keys as long as the session that made them is heard of: what etcd
// calls a lease with keys, and ZooKeeper a session with ephemeral nodes. The oldest key has the
// lock. It counts time by a clock that does not step.
type keeper struct {
	w        *world
	rule     keeping
	sessions map[int64]time.Duration // when each ends
	keys     []key
	number   int64 // of the last change: a revision, a zxid
}

// keeping are the figures of a keeper and its clients.
type keeping struct {
	life  time.Duration // of a session that is not heard of
	round time.Duration // between two looks for sessions that have ended
	beat  time.Duration // of a client's signs of life
	retry time.Duration // after one that failed
	// how often the client looks itself whether its session may have ended; 0: never
	itself time.Duration
}

type key struct {
	session, number int64
	owner           string
}

func (k key) name() string { return fmt.Sprintf("%s:%d", k.owner, k.number) }

// heard notes a sign of life. It is false for a session that has ended.
func (k *keeper) heard(session int64) bool {
	k.tidy()
	_, known := k.sessions[session]
	if known {
		k.sessions[session] = k.w.Now() + k.rule.life
	}
	return known
}

// tidy ends the sessions that were over when it was last looked for them, and removes their keys.
func (k *keeper) tidy() {
	looked := k.w.Now().Truncate(k.rule.round)
	k.keys = slices.DeleteFunc(k.keys, func(o key) bool { return k.sessions[o.session] <= looked })
	for session, end := range k.sessions {
		if end <= looked {
			delete(k.sessions, session)
		}
	}
}

// holder is the name of the oldest key.
func (k *keeper) holder() string {
	if k.tidy(); len(k.keys) == 0 {
		return ""
	}
	return k.keys[0].name()
}

func (k *keeper) next() int64 { k.number++; return k.number }

// A client is the lock manager of a process: one session, and a key for each attempt.
type client struct {
	p       *process
	k       *keeper
	session *session
}

// A session of a client.
type session struct {
	id     int64
	closed bool          // the client knows that it has ended
	until  time.Duration // by the client's monotonic clock
}

func newClient(p *process, rule keeping) manager {
	if p.w.beside == nil {
		k := &keeper{w: p.w, rule: rule, sessions: map[int64]time.Duration{}}
		p.w.beside, p.w.holder = k, k.holder
	}
	return &client{p: p, k: p.w.beside.(*keeper)}
}

func (c *client) start() bool { return true }
func (c *client) close()      {} // its session ends by itself

// call sends a command; carried out it is a sign of life, too.
func (c *client) call(kind Kind, op string, s *session, do func() string) error {
	said, alive := "", false
	err := c.p.send(c.p.w.generation.Source, kind, op, none, func() error {
		if alive = c.k.heard(s.id); alive {
			said = do()
		}
		return nil
	}, func() string {
		if !alive {
			return "the session has ended"
		}
		return said
	})
	if err == nil && !alive {
		s.closed = true
		return errLost
	}
	return err
}

// open returns the session, a new one if the last has ended.
func (c *client) open() (*session, error) {
	if c.session != nil && !c.session.closed {
		return c.session, nil
	}
	s := &session{}
	err := c.p.send(c.p.w.generation.Source, Insert, "open a session", none, func() error {
		s.id = c.k.next()
		c.k.sessions[s.id] = c.k.w.Now() + c.k.rule.life
		return nil
	}, none)
	if err != nil {
		return nil, err
	}
	c.session, s.until = s, c.now()+c.k.rule.life
	c.p.Go(func() { c.beats(s) })
	if c.k.rule.itself > 0 {
		c.p.Go(func() { c.looks(s) })
	}
	return s, nil
}

func (c *client) now() time.Duration { return c.p.Clock.Now().Mono }

// beats sends signs of life.
func (c *client) beats(s *session) {
	for pause := c.k.rule.beat; ; {
		if c.p.sleep(pause); s.closed {
			return
		}
		if pause = c.k.rule.retry; c.call(Ping, "sign of life",
			s, func() string { return "alive" }) == nil {
			pause, s.until = c.k.rule.beat, c.now()+c.k.rule.life // from when the answer came
		}
	}
}

// looks ends a session of which no answer has come for its life.
func (c *client) looks(s *session) {
	for !s.closed {
		c.p.sleep(c.k.rule.itself)
		s.closed = s.closed || s.until < c.now()
	}
}

// lock makes a key and waits until no older one is there. That is a watch; here it asks every
// second.
func (c *client) lock(_ string, patience time.Duration) (tenure, error) {
	end := c.p.w.Now() + patience
	s, err := c.open()
	if err != nil {
		return nil, err
	}
	h := &heldKey{c: c, s: s}
	err = c.call(Grab, "make a key", s, func() string {
		h.key = key{s.id, c.k.next(), c.p.host}
		c.k.keys = append(c.k.keys, h.key)
		return h.key.name()
	})
	for err == nil {
		first := false
		err = c.call(Ask, "which key is the oldest", s, func() string {
			first = c.k.holder() == h.key.name()
			return c.k.holder()
		})
		if err == nil && first {
			return h, nil
		}
		if err == nil && c.p.w.Now() >= end {
			_ = h.release()
			return nil, errHeld
		}
		c.p.sleep(time.Second)
	}
	_ = h.release()
	return nil, err
}

// heldKey is a lock that was got.
type heldKey struct {
	c   *client
	s   *session
	key key
}

func (h *heldKey) session() string { return h.key.name() }
func (h *heldKey) fence() int64    { return h.key.number }
func (h *heldKey) proceed() error  { return h.trusted() }

// trusted knows what the client knows of its session.
func (h *heldKey) trusted() error {
	if h.s.closed {
		return errLost
	}
	return nil
}

// check asks whether the key is there.
func (h *heldKey) check() error {
	there := false
	err := h.c.call(Ask, "is the key there", h.s, func() string {
		there = slices.Contains(h.c.k.keys, h.key)
		return fmt.Sprint(there)
	})
	if err == nil && !there {
		err = errLost
	}
	return err
}

func (h *heldKey) release() error {
	return h.c.call(Release, "delete the key", h.s, func() string {
		h.c.p.writes++
		h.c.k.keys = slices.DeleteFunc(h.c.k.keys, func(o key) bool { return o == h.key })
		return "deleted"
	})
}
