//go:build unix

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"mongodlm/internal/clock"
)

// scripts are commands that "distlock run" starts in the tests, as shell scripts.
var scripts = map[string]string{
	"env":  `echo "DISTLOCK_NAME=$DISTLOCK_NAME"; echo "DISTLOCK_FENCE=$DISTLOCK_FENCE"; exit $1`,
	"die":  `kill -9 $$`,
	"stop": `echo stops; kill -STOP $$; echo "goes on"; exit 3`,
	"read": `echo "ready $$"; read line; echo "read $line"; exit 5`,
	"alive": `for pid; do
		case $(ps -o stat= -p $pid) in Z* | "") ;; *) echo "alive: $pid" ;; esac
	done`,
}

// helperLimit bounds the life of a helper, so that a failed test leaves no process.
const helperLimit = 2 * time.Minute

// helper is a command that "distlock run" starts in the tests and that a shell script cannot
// replace. The first parameter selects its behavior.
func helper(what string, args []string) int {
	caught := make(chan os.Signal, 8)
	if what != "distlock" {
		signal.Ignore(syscall.SIGPIPE) // the reading parent may be gone
	}
	switch what {
	case "polite": // exits with 7 after a signal
		signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ready", os.Getpid())
		if s := helperSignal(caught); s != nil {
			fmt.Println("got", s)
			return 7
		}
	case "obedient": // exits with 0 after SIGTERM
		signal.Notify(caught, syscall.SIGTERM)
		fmt.Println("ready", os.Getpid())
		if helperSignal(caught) != nil {
			return 0
		}
	case "stubborn": // prints its signals, and does not exit
		signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ready", os.Getpid())
		for s := helperSignal(caught); s != nil; s = helperSignal(caught) {
			fmt.Println("got", s)
		}
	case "parent": // leaves a child of the given kind
		return leaveBehind(args[0])
	case "between": // leaves a child in its process group, leaves the group itself, and exits later
		leaveBehind("polite")
		_, _ = syscall.Setsid()
		clock.Sleep(clock.System(), 3*time.Second, nil) // longer than pipeDelay
		return 0
	case "leaver": // moves to the process group of its parent
		group, _ := syscall.Getpgid(os.Getppid())
		if syscall.Setpgid(0, group) == nil {
			return 3
		}
	case "family": // starts two processes that do not end
		self, _ := os.Executable()
		_, err := os.StartProcess(self, []string{self, "helper", "stubborn"},
			&os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
		if err == nil {
			return helper("stubborn", nil)
		}
	case "distlock":
		os.Args = append([]string{"distlock"}, args...)
		main()
	}
	return 99
}

// leaveBehind starts a helper, waits until it is ready, and returns while it runs.
func leaveBehind(what string) int {
	self, _ := os.Executable()
	reading, writing, _ := os.Pipe()
	child, err := os.StartProcess(self, []string{self, "helper", what},
		&os.ProcAttr{Files: []*os.File{nil, writing, os.Stderr}})
	if err == nil {
		_, _ = reading.Read(make([]byte, 1)) // until the helper is ready
		fmt.Println("parent of", child.Pid)
	}
	return 0
}

func helperSignal(caught <-chan os.Signal) os.Signal {
	limit := clock.System().NewTimer(helperLimit)
	defer limit.Stop()
	select {
	case s := <-caught:
		return s
	case <-limit.C():
		return nil
	}
}
