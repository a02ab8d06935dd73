package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"mongodlm/distlock"
)

// Timing of the demo. It is shortened so that a takeover takes seconds; the defaults of the library
// are mongos': 30 s and 15 min.
const (
	demoPing     = 300 * time.Millisecond
	demoTakeover = 4 * time.Second
	roundPause   = 100 * time.Millisecond
	grantPoll    = 40 * time.Millisecond
	lineWait     = 10 * time.Second // mongos slept as long between two rounds
	movePause    = 12 * time.Millisecond
	demoLimit    = 3 * time.Minute
)

// opts are the flags of all commands.
type opts struct {
	uri, database, cluster, log string
	processes, rounds, number   int
	ping, takeover              time.Duration
	roundPause, movePause, wait time.Duration
	noFaults, json, keep        bool
	ifEmpty, untilEOF           bool
}

func parse(command string, args []string, errOut io.Writer) (opts, error) {
	var o opts
	f := flag.NewFlagSet("balancer-demo "+command, flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.uri, "uri", os.Getenv("MONGODLM_URI"),
		"a MongoDB to use instead of the embedded config server; also MONGODLM_URI")
	f.Lookup("uri").DefValue = "" // the help would print the environment's, password and all
	f.StringVar(&o.database, "database", "config", "the database that holds locks and cluster")
	switch command {
	case "demo":
		f.IntVar(&o.processes, "processes", 3, "number of balancer processes, 1 to 50")
		f.IntVar(&o.rounds, "rounds", 0, "end after so many rounds; 0: when the cluster is balanced")
		f.BoolVar(&o.noFaults, "no-faults", false, "kill and stop nobody")
		f.BoolVar(&o.json, "json", false, "print the report as JSON, and nothing else")
		f.BoolVar(&o.keep, "keep", false, "go on with the cluster that the database holds already")
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
		f.DurationVar(&o.ping, "ping", demoPing, "time between two pings; shortened for the demo (mongos: 30s)")
		f.DurationVar(&o.takeover, "takeover", demoTakeover, "takeover time; shortened for the demo (mongos: 15m)")
		f.DurationVar(&o.roundPause, "round-pause", roundPause, "time between two rounds of a balancer")
		f.DurationVar(&o.wait, "wait", lineWait,
			"how long a balancer stands in line for the lock before it reads the settings again")
		f.DurationVar(&o.movePause, "move-pause", movePause, "time that stands for the copying of a chunk")
		f.StringVar(&o.log, "log", "", "append the lock's events of all processes to this file")
	}
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errUsage
	}
	return o, o.check(command, f.Args())
}

func (o opts) check(command string, rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q; flags begin with --", rest[0])
	case command == "demo" && (o.processes < 1 || o.processes > 50):
		return fmt.Errorf("--processes is %d, must be 1 to 50", o.processes)
	case o.rounds < 0:
		return fmt.Errorf("--rounds is %d, must not be negative", o.rounds)
	case command != "load" && (o.roundPause <= 0 || o.movePause < 0):
		return errors.New("--round-pause must be positive and --move-pause must not be negative")
	case command != "load" && o.wait <= 0:
		return errors.New("--wait must be positive: a balancer stands in line for the lock")
	case command != "load" && o.timing() != nil:
		return o.timing()
	case command != "demo" && o.uri == "":
		return errors.New("--uri is missing: give the connection string of a MongoDB, or set MONGODLM_URI")
	case command == "demo" && o.keep && o.uri == "":
		return errors.New("--keep needs --uri: the embedded config server begins empty")
	case command == "demo" && o.keep && o.cluster != "":
		return errors.New("--keep and --cluster exclude each other")
	}
	return nil
}

// poll is the longest pause between two questions of a waiting balancer for its grant, on a server
// that has no change streams. It is short, as the rounds of the demo are; the lock wants it to be at
// most a thirtieth of the takeover time.
func (o opts) poll() time.Duration { return max(time.Millisecond, min(grantPoll, o.takeover/30)) }

// timing refuses what the lock would refuse, before anything is started.
func (o opts) timing() error {
	err := distlock.Config{URI: "mongodb://localhost", Ping: o.ping, Takeover: o.takeover,
		Poll: o.poll(), PollMax: o.poll()}.Validate()
	if err != nil {
		return fmt.Errorf("--ping and --takeover: %w", err)
	}
	return nil
}
