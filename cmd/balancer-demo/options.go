package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"mongodlm/cmd/internal/scrape"
	"mongodlm/distlock"
)

// The times of the demo. They are short, so that a takeover takes seconds. The library's defaults
// are the values of mongos: 30 s between pings and a takeover time of 15 min.
const (
	demoPing     = 300 * time.Millisecond
	demoTakeover = 4 * time.Second
	demoLimit    = 3 * time.Minute
)

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
		"MongoDB connection string, instead of the embedded config server; default: MONGODLM_URI")
	f.Lookup("uri").DefValue = "" // the help would print the environment's value with its password
	f.StringVar(&o.database, "database", "config", "the database of the locks and the cluster")
	switch command {
	case "demo":
		f.IntVar(&o.processes, "processes", 3, "number of balancer processes, 1 to 50")
		f.BoolVar(&o.noFaults, "no-faults", false, "kill and stop no process")
		f.StringVar(&o.http, "http", "", "show the locks as a web page at this `address`, such as "+
			"127.0.0.1:8087; the page remains after the report\nuntil the demo is interrupted, and a "+
			"holder is killed every 30 s")
	case "load":
		f.BoolVar(&o.ifEmpty, "if-empty", false, "succeed if the database already has a cluster")
	case "balancer":
		f.IntVar(&o.number, "number", 1, "the number of this balancer")
		f.BoolVar(&o.untilEOF, "until-eof", false, "exit at the end of standard input")
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
			scrape.Usage+". Each further balancer\nuses the next port")
	}
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return o, err
	} else if err != nil {
		return o, errUsage
	}
	err := o.check(command, f.Args())
	return o, err
}

// check validates the command line before any process is started.
func (o *opts) check(command string, rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q; flags begin with --", rest[0])
	case command == "demo" && (o.processes < 1 || o.processes > 50):
		return fmt.Errorf("--processes is %d, must be 1 to 50", o.processes)
	case command != "demo" && o.uri == "":
		return errors.New("--uri is missing: " +
			"give a MongoDB connection string, or set MONGODLM_URI")
	case command == "load":
		return nil
	}
	err := distlock.Config{URI: "mongodb://localhost", Ping: o.ping, Takeover: o.takeover}.Validate()
	if err != nil {
		return fmt.Errorf("--ping and --takeover: %w", err)
	}
	if err := o.checkPage(); err != nil || o.metrics == "" {
		return err
	}
	if o.metrics, err = scrape.Accept(o.metrics); err == nil {
		_, err = scrape.Accept(o.metricsOf(o.processes))
	}
	return err
}

// metricsOf returns the address for the metrics of a balancer. Each balancer uses the port after
// that of the previous one, or any free port if the port is 0.
func (o *opts) metricsOf(number int) string {
	host, port, _ := net.SplitHostPort(o.metrics) // valid, because Accept returned it
	n, _ := strconv.Atoi(port)
	if n > 0 {
		n += max(0, number-1)
	}
	return net.JoinHostPort(host, strconv.Itoa(n))
}
