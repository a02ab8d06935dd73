package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"mongodlm/cmd/internal/scrape"
	"mongodlm/distlock"
)

// Timing of the demo. It is shortened so that a takeover takes seconds. The defaults of the library
// are mongos' values: 30 s and 15 min.
const (
	demoPing     = 300 * time.Millisecond
	demoTakeover = 4 * time.Second
	grantPoll    = 40 * time.Millisecond
	demoLimit    = 3 * time.Minute
)

// opts has the flags of all commands.
type opts struct {
	uri, database, cluster      string
	http, metrics               string // addresses; metrics is the first balancer's address
	processes, number           int
	ping, takeover              time.Duration
	noFaults, ifEmpty, untilEOF bool
}

func parse(command string, args []string, errOut io.Writer) (opts, error) {
	var o opts
	f := flag.NewFlagSet("balancer-demo "+command, flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.uri, "uri", os.Getenv("MONGODLM_URI"),
		"a MongoDB to use instead of the embedded config server; also MONGODLM_URI")
	f.Lookup("uri").DefValue = "" // the help would print the environment's value with its password
	f.StringVar(&o.database, "database", "config", "the database that holds locks and cluster")
	switch command {
	case "demo":
		f.IntVar(&o.processes, "processes", 3, "number of balancer processes, 1 to 50")
		f.BoolVar(&o.noFaults, "no-faults", false, "kill and stop nobody")
		f.StringVar(&o.http, "http", "", "show the locks as a page at this `address`, such as "+
			"127.0.0.1:8087; it stays after the report\nuntil the demo is interrupted, and a holder is "+
			"killed every 30 s")
	case "load":
		f.BoolVar(&o.ifEmpty, "if-empty", false, "succeed when the database holds a cluster already")
	case "balancer":
		f.IntVar(&o.number, "number", 1, "the number by which this balancer is called")
		f.BoolVar(&o.untilEOF, "until-eof", false, "end when the standard input ends")
	default:
		return o, fmt.Errorf("there is no command %q; the commands are load and balancer", command)
	}
	if command != "balancer" {
		f.StringVar(&o.cluster, "cluster", "",
			"file with the output of mongoexport of shards, collections and chunks; default: a sample")
	}
	if command != "load" {
		f.DurationVar(&o.ping, "ping", demoPing,
			"time between two pings; shortened for the demo (mongos: 30s)")
		f.DurationVar(&o.takeover, "takeover", demoTakeover,
			"takeover time; shortened for the demo (mongos: 15m)")
		f.StringVar(&o.metrics, "metrics", "",
			scrape.Usage+". Of several balancers the next\nhas the next port")
	}
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return o, err
	} else if err != nil {
		return o, errUsage
	}
	err := o.check(command, f.Args())
	return o, err
}

// check finds errors in the command line before any process is started.
func (o *opts) check(command string, rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q; flags begin with --", rest[0])
	case command == "demo" && (o.processes < 1 || o.processes > 50):
		return fmt.Errorf("--processes is %d, must be 1 to 50", o.processes)
	case command != "demo" && o.uri == "":
		return errors.New("--uri is missing: " +
			"give the connection string of a MongoDB, or set MONGODLM_URI")
	case command == "load":
		return nil
	}
	err := distlock.Config{URI: "mongodb://localhost", Ping: o.ping, Takeover: o.takeover,
		Poll: o.poll(), PollMax: o.poll()}.Validate()
	if err != nil {
		return fmt.Errorf("--ping and --takeover: %w", err)
	}
	if err := o.checkPage(); err != nil || o.metrics == "" {
		return err
	}
	if o.metrics, err = scrape.Accept(o.metrics); err == nil {
		_, err = scrape.Above(o.metrics, max(0, o.processes-1))
	}
	return err
}

// poll returns the longest pause between two polls of a waiting balancer on a server without change
// streams. The lock requires at most a thirtieth of the takeover time.
func (o opts) poll() time.Duration { return max(time.Millisecond, min(grantPoll, o.takeover/30)) }
