package distlock

import (
	"fmt"
	"time"
	"unicode"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/takeover"
)

const (
	defaultDatabase = "config"
	defaultTakeover = 15 * time.Minute // also of a foreign holder
	defaultPoll     = 500 * time.Millisecond
	// pruneAge is the age from which on an unused document is deleted. pruneEvery is the mean time
	// between two prunings.
	pruneAge, pruneEvery = 4 * 24 * time.Hour, time.Hour
)

// configServerTakeover is the takeover time of MongoDB's own lock manager on a config server.
// MongoDB's lock manager ignores the takeover times that this package writes.
const configServerTakeover = 15 * time.Minute

// Config is the configuration of a Manager. Only a connection is required: URI, ClientOptions,
// Client or Catalog. The zero value of any other field selects the default, where possible that of
// mongos.
type Config struct {
	// Set URI, ClientOptions, Client or Catalog. If Catalog is set, the other three must not be set.
	// URI and ClientOptions must not be set together.

	URI           string                 // its concerns, read preference and retries are ignored
	ClientOptions *options.ClientOptions // for two clients: one for locks, one for the heartbeat
	Client        *mongo.Client          // acquires and releases; Close does not disconnect it
	// PingClient serves the heartbeat if Client is set. Nil selects a client made from URI or
	// ClientOptions, else Client. If the application then uses up Client's connections, it can lose
	// its locks.
	PingClient *mongo.Client
	Catalog    catalog.Catalog // another store, such as memcatalog in a unit test

	Database string // of locks and lockpings; default "config", which only clusters should use

	Ping time.Duration // time between two pings; default 30 s; Ping*3 <= Takeover - Margin
	// Takeover is the silence after which a holder's locks may be taken. The longer of the holder's
	// and the contender's counts. Default 15 min; at most 7 days, 15 min in config on a config
	// server.
	Takeover time.Duration
	Margin   time.Duration // guards are lost this long before Takeover is over; default Takeover/4

	// Poll is the pause of a waiting call after its first failed command. Further pauses grow to
	// PollMax. Without change streams, a process polls for its grants every Poll/100 to PollMax.
	// Defaults 500 ms and 5 s, or Takeover/30 if that is less.
	Poll, PollMax  time.Duration
	CommandTimeout time.Duration // limit of one command; default 5 s
	// PruneLocks deletes documents of locks that are free and were not acquired for 4 days, or for
	// Takeover if that is longer, up to 10,000 an hour. It is for generated names, and needs the
	// privilege to remove. Fences still rise, unless the server's clock is set back by 4 days.
	PruneLocks bool

	Tuning

	Host     string         // begins the process id; up to 255 bytes; default the machine's name
	Logger   zerolog.Logger // logs the events; default silent
	Observer Observer       // receives the events as values; see [Observers] and package history
}

// Tuning holds the settings for tests and for unusual deployments.
type Tuning struct {
	// MaxClockSkew is the largest tolerated difference between the server's and the contender's
	// clock. With takeover.Witnesses it is at most Margin. Default Takeover/30, or Margin if that is
	// less.
	MaxClockSkew    time.Duration
	MaxWatchGap     time.Duration // a longer gap between reads restarts a watch; default Takeover/4
	TakeoverRule    takeover.Rule // takeover.Witnesses, the default, or takeover.WatchOnly
	ForeignTakeover time.Duration // the least takeover time for a foreign holder; default 15 min
	ReleaseTries    int           // tries of Release before the background continues; default 3
	ReleasePause    time.Duration // pause after the first failed try; then it doubles; default 2 s
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&c.Ping, 30*time.Second)
	set(&c.Takeover, defaultTakeover)
	set(&c.Margin, c.Takeover/4)
	set(&c.MaxClockSkew, max(time.Millisecond, min(c.Takeover/30, c.Margin)))
	set(&c.MaxWatchGap, c.Takeover/4)
	set(&c.ForeignTakeover, defaultTakeover)
	set(&c.Poll, max(time.Millisecond, min(defaultPoll, c.Takeover/30)))
	set(&c.PollMax, max(c.Poll, min(5*time.Second, c.Takeover/30)))
	set(&c.CommandTimeout, 5*time.Second)
	set(&c.ReleasePause, 2*time.Second)
	if c.ReleaseTries == 0 {
		c.ReleaseTries = 3
	}
	if c.Database == "" {
		c.Database = defaultDatabase
	}
	return c
}

// Validate returns a *ConfigError that lists every contradiction, or nil.
func (c Config) Validate() error {
	c = c.withDefaults()
	var problems []string
	say := func(text string, args ...any) { problems = append(problems, fmt.Sprintf(text, args...)) }
	c.checkStore(say)
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Ping", c.Ping}, {"Takeover", c.Takeover}, {"Margin", c.Margin},
		{"MaxClockSkew", c.MaxClockSkew}, {"MaxWatchGap", c.MaxWatchGap},
		{"ForeignTakeover", c.ForeignTakeover}, {"Poll", c.Poll}, {"PollMax", c.PollMax},
		{"CommandTimeout", c.CommandTimeout}, {"ReleasePause", c.ReleasePause},
	} {
		if d.value < time.Millisecond {
			say("%s is %v, must be at least 1ms", d.name, d.value)
		}
	}
	if c.Takeover > catalog.MaxTakeover {
		say("Takeover is %v, must be at most %v", c.Takeover, catalog.MaxTakeover)
	} else if c.Margin >= c.Takeover {
		say("Margin (%v) must be smaller than Takeover (%v)", c.Margin, c.Takeover)
	} else if c.Ping > (c.Takeover-c.Margin)/3 {
		say("three pings must fit into the time a lock is trusted: Ping (%v) * 3 must be at most "+
			"Takeover - Margin (%v - %v); shorten Ping or lengthen Takeover", c.Ping, c.Takeover, c.Margin)
	}
	if c.PollMax < c.Poll {
		say("PollMax (%v) must not be smaller than Poll (%v)", c.PollMax, c.Poll)
	}
	if c.PollMax > c.MaxWatchGap/2 {
		say("PollMax (%v) must be at most half of MaxWatchGap (%v), or every watch of a "+
			"waiter would have a gap", c.PollMax, c.MaxWatchGap)
	}
	if c.ReleaseTries < 1 || c.ReleaseTries > 10 {
		say("ReleaseTries is %d, must be 1 to 10", c.ReleaseTries)
	}
	if c.TakeoverRule < takeover.Witnesses || c.TakeoverRule > takeover.WatchOnly {
		say("TakeoverRule is %d, must be takeover.Witnesses or takeover.WatchOnly", c.TakeoverRule)
	}
	if c.MaxClockSkew >= c.Takeover {
		say("MaxClockSkew (%v) must be smaller than Takeover (%v)", c.MaxClockSkew, c.Takeover)
	}
	if c.TakeoverRule == takeover.Witnesses && c.MaxClockSkew > c.Margin {
		say("MaxClockSkew (%v) must be at most Margin (%v): a contender's clocks may be off by "+
			"that much, and the holder must stop trusting its locks before that; lengthen Margin, "+
			"shorten MaxClockSkew, or use takeover.WatchOnly", c.MaxClockSkew, c.Margin)
	}
	if problem := badHost(c.Host); problem != "" {
		say("Host %s", problem)
	}
	if len(problems) > 0 {
		return &ConfigError{Problems: problems}
	}
	return nil
}

func (c Config) checkStore(say func(string, ...any)) {
	server := c.URI != "" || c.ClientOptions != nil || c.Client != nil
	switch {
	case !server && c.Catalog == nil:
		say("no connection: set URI, ClientOptions, Client or Catalog")
	case server && c.Catalog != nil:
		say("Catalog excludes URI, ClientOptions and Client: set one of them")
	}
	if c.URI != "" && c.ClientOptions != nil {
		say("URI and ClientOptions exclude each other: apply the URI to the options")
	}
	if c.PingClient != nil && c.Client == nil {
		say("PingClient requires Client")
	}
	if problem := badDatabase(c.Database); problem != "" {
		say("Database %s", problem)
	}
}

func badDatabase(name string) string {
	if problem := catalog.BadText(name, 63); problem != "" {
		return problem
	}
	for _, r := range name {
		switch r {
		case '/', '\\', '.', ' ', '"', '$', '*', '<', '>', ':', '|', '?':
			return fmt.Sprintf("contains %q, which MongoDB does not allow", r)
		}
	}
	if name == "admin" || name == "local" {
		return fmt.Sprintf("is %q, which belongs to the server; use one of your own", name)
	}
	return ""
}

// badHost returns the problem of a host name, or "". A host name must be one line of text.
func badHost(host string) string {
	if problem := catalog.BadText(host, 255); problem != "" {
		return problem
	}
	for _, r := range host {
		if unicode.IsControl(r) {
			return fmt.Sprintf("contains %q, but a process id is one line of text: remove it", r)
		}
	}
	return ""
}

func (c Config) policy() takeover.Policy {
	return takeover.Policy{
		Takeover: c.Takeover, ForeignTakeover: c.ForeignTakeover,
		PingInterval: c.Ping, MaxClockSkew: c.MaxClockSkew, MaxGap: c.MaxWatchGap,
		Rule: c.TakeoverRule,
	}
}
